"""limit_size, limit_window, key_func: at most so many requests in any window, smoothly, per key.

python examples/schedule/schedule_limit.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge
from qreward.utils import schedule


async def main() -> None:
    async with FakeJudge() as judge, OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=1e9) as proxy:

        @schedule(limit_size=20, limit_window=1.0, key_func=lambda model, text: model)
        async def score(model: str, text: str) -> str:
            return await proxy.chat_completion([{"role": "user", "content": text}], model)

        calls = [score(model, f"poem {i}") for i in range(30) for model in ("judge-a", "judge-b")]
        await asyncio.gather(*calls)
        for model in ("judge-a", "judge-b"):
            times = [a.at for a in judge.counters.arrivals if a.body["model"] == model]
            most = max(sum(1 for t in times if start <= t < start + 1.0) for start in times)
            print(f"{model}: {len(times)} requests in {times[-1] - times[0]:.1f} s, at most {most} in any second")
            bar = [sum(1 for t in times if k / 10 <= t - times[0] < (k + 1) / 10) for k in range(16)]
            print("  per 100 ms:", " ".join(map(str, bar)))


if __name__ == "__main__":
    asyncio.run(main())
