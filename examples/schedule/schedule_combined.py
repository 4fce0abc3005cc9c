"""Everything together: a judge that stalls, fails, refuses and recovers, and a batch that loses nothing.

python examples/schedule/schedule_combined.py
"""

import asyncio
import time
from collections import Counter

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge
from qreward.utils import schedule
from qreward.utils.scheduler import ScheduleMetrics

seen: list[ScheduleMetrics] = []


async def main() -> None:
    stalls = {"latency_s": 0.04, "sigma": 0.3, "stall_prob": 0.02}
    faults = {"p500": 0.05, "p_reset": 0.02, "rate": 400, "burst": 40}
    async with FakeJudge(**stalls, **faults) as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:

        @schedule(
            timeout=30,
            retry_times=8,
            retry_interval=0.1,
            hedged_request_time="p99",
            limit_size=380,
            circuit_breaker_threshold=20,
            default_result=None,
            metrics_callback=seen.append,
        )
        async def score(text: str) -> str:
            messages = [{"role": "user", "content": text}]
            answer = await proxy.client.chat.completions.create(model="judge", messages=messages)
            return answer.choices[0].message.content

        began = time.perf_counter()
        answers = await asyncio.gather(*(score(f"poem {i}") for i in range(1000)))
        took = time.perf_counter() - began
        right = sum(answer == f"echo:poem {i}" for i, answer in enumerate(answers))
        print(f"{right} of {len(answers)} answers, each to its own prompt, in {took:.1f} s")
        print(f"outcomes {dict(Counter(m.outcome for m in seen))}")
        print(f"retries {sum(m.retry_count for m in seen)}, hedges {sum(m.hedge_count for m in seen)}, ", end="")
        print(f"requests at the judge {judge.counters.received}")


if __name__ == "__main__":
    asyncio.run(main())
