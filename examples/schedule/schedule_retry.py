"""retry_times, retry_interval, exception_types: by the type of the error, politely.

python examples/schedule/schedule_retry.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge, Reply
from qreward.utils import schedule


class NoScore(ValueError):
    """The judge answered, but not with a number."""


async def main() -> None:
    words = iter(["I would say", "hmm", "7"])
    async with (
        FakeJudge(answer=lambda body: next(words, "7")) as judge,
        OpenAIChatProxy(judge.url, api_key="k") as proxy,
    ):

        @schedule(retry_times=5, retry_interval=0.1, exception_types=(NoScore,))
        async def parsed(text: str) -> int:
            answer = await proxy.chat_completion([{"role": "user", "content": text}], "judge")
            if not answer.isdigit():
                raise NoScore(f"{answer!r} is not a number")
            return int(answer)

        print(f"score {await parsed('a poem')} after {judge.counters.received} requests: two answers were no numbers")

        @schedule(retry_times=5, retry_interval=0.1)
        async def plain(text: str) -> str:
            return await proxy.client.chat.completions.create(
                model="judge", messages=[{"role": "user", "content": text}]
            )

        judge.reset()
        judge.script(400)
        try:
            await plain("a bad request")
        except Exception as exc:
            print(f"{type(exc).__name__} after {judge.counters.received} request: a 400 is not repeated")

        judge.reset()
        judge.script(Reply(429, retry_after=0.5))
        await plain("too many")
        first, second = judge.counters.arrived_at
        print(f"429 with Retry-After 0.5: the next request came {second - first:.2f} s later")


if __name__ == "__main__":
    asyncio.run(main())
