"""hedged_request_*: a duplicate for the few requests that stall; the first answer wins, the loser is cancelled.

python examples/schedule/schedule_hedged_request.py
"""

import asyncio
import time

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge
from qreward.utils import schedule


async def slowest(judge: FakeJudge, **settings: object) -> tuple[float, int]:
    judge.reset()
    async with OpenAIChatProxy(judge.url, api_key="k", max_concurrent=128, rate_limiter_bucket_size=1e9) as proxy:
        times: list[float] = []
        room = asyncio.Semaphore(32)

        @schedule(**settings)
        async def score(text: str) -> str:
            return await proxy.chat_completion([{"role": "user", "content": text}], "judge")

        async def timed(text: str) -> None:
            async with room:
                began = time.perf_counter()
                await score(text)
                times.append(time.perf_counter() - began)

        await asyncio.gather(*(timed(f"poem {i}") for i in range(400)))
    return max(times), judge.counters.received


async def main() -> None:
    async with FakeJudge(latency_s=0.04, sigma=0.3, stall_prob=0.01, stall_s=2.0) as judge:
        print(f"{'400 calls, 1 % of the requests stall 2 s':44}{'slowest call':>14}{'requests':>10}")
        for name, settings in {
            "no hedging": {},
            "hedged_request_time=0.2": {"hedged_request_time": 0.2},
            'hedged_request_time="p99"': {"hedged_request_time": "p99"},
        }.items():
            worst, requests = await slowest(judge, **settings)
            print(f"{name:44}{worst:12.2f} s{requests:10}")
        await asyncio.sleep(0.1)
        print(f"losers that the judge saw leaving in the last run: {judge.counters.client_gone}")


if __name__ == "__main__":
    asyncio.run(main())
