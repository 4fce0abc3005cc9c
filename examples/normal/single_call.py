"""One judge, one question.

python examples/normal/single_call.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge


async def main() -> None:
    async with FakeJudge(answer=lambda body: "7") as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:
        answer = await proxy.chat_completion(
            messages=[{"role": "user", "content": "Rate this poem from 1 to 10."}],
            model="judge",
            temperature=0.0,
            max_tokens=4,
            seed=1,
        )
        print("answer:", answer)
        sent = judge.counters.arrivals[0].body
        print("on the wire:", {k: v for k, v in sent.items() if k != "messages"})


if __name__ == "__main__":
    asyncio.run(main())
