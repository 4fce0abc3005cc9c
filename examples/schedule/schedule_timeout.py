"""timeout: wall clock for the whole call, retries and waits included; the request is cancelled on the wire.

python examples/schedule/schedule_timeout.py
"""

import asyncio
import time

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge
from qreward.utils import schedule


async def main() -> None:
    async with FakeJudge(dead="hang") as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:

        @schedule(timeout=0.5, retry_times=10)
        async def score(text: str) -> str:
            return await proxy.chat_completion([{"role": "user", "content": text}], "judge")

        began = time.perf_counter()
        try:
            await score("a poem")
        except TimeoutError as exc:
            print(f"TimeoutError after {time.perf_counter() - began:.1f} s: {exc}")
        await asyncio.sleep(0.1)
        print(f"the judge saw {judge.counters.received} request and {judge.counters.client_gone} disconnect")


if __name__ == "__main__":
    asyncio.run(main())
