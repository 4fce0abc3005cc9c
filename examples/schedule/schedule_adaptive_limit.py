"""adaptive_limit: find out by itself how much a judge can take, and follow when that changes.

python examples/schedule/schedule_adaptive_limit.py
"""

import asyncio
import time

import aiohttp

from qreward.testing import FakeJudge
from qreward.utils import schedule


class Busy(Exception):
    """A 503 of the judge."""

    status_code = 503


async def run(judge: FakeJudge, **settings: object) -> str:
    judge.reset()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        @schedule(retry_times=50, retry_interval=0.05, limit_size=60, limit_window=0.05, **settings)
        async def score(text: str) -> None:
            body = {"messages": [{"role": "user", "content": text}]}
            async with session.post(f"{judge.url}/chat/completions", json=body) as answer:
                if answer.status == 503:
                    raise Busy

        began = time.perf_counter()
        await asyncio.gather(*(score(f"poem {i}") for i in range(150)))
        return f"{judge.counters.status(503):6} refused requests, {time.perf_counter() - began:5.1f} s"


async def main() -> None:
    async with FakeJudge(latency_s=0.03, capacity=16) as judge:
        print("150 calls to a judge with room for 16:")
        print("  limit_size=60, fixed:   ", await run(judge))
        adaptive = {"adaptive_limit": True, "adaptive_limit_min": 1, "adaptive_limit_max": 60}
        print("  limit_size=60, adaptive:", await run(judge, **adaptive))


if __name__ == "__main__":
    asyncio.run(main())
