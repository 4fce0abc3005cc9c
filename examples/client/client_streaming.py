"""A stream: the pieces of an answer as they come.

python examples/client/client_streaming.py
"""

import asyncio
import time

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge


async def main() -> None:
    words = "The poem is short, honest and a little sad. 7/10"
    async with (
        FakeJudge(answer=lambda body: words, sse_tokens=10, sse_gap_s=0.05) as judge,
        OpenAIChatProxy(judge.url, api_key="k") as proxy,
    ):
        began = time.perf_counter()
        async for piece in proxy.stream_chat_completion([{"role": "user", "content": "Rate the poem."}], "judge"):
            print(f"{time.perf_counter() - began:5.2f} s  {piece!r}")

        judge.faults.set(sse_gap_s=1.0)
        async for piece in proxy.stream_chat_completion([{"role": "user", "content": "Again."}], "judge"):
            print(f"stopped after {piece!r}")
            break
        await asyncio.sleep(0.2)
        print(f"readers that the judge saw leaving: {judge.counters.client_gone}")


if __name__ == "__main__":
    asyncio.run(main())
