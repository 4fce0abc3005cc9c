"""ComputePool: a free but slow judge, a quick but paid one and a local function as one pool.

python examples/pool/compute_pool.py
"""

import asyncio
import time
from statistics import mean

from rich.console import Console
from rich.table import Table

from qreward.client.pool import CallableSource, ComputePool, OpenAISource
from qreward.testing import FakeJudge


def length_reward(text: str) -> float:
    time.sleep(0.002)  # some arithmetic
    return min(1.0, len(text) / 20)


async def timed(pool: ComputePool, i: int, **settings: object) -> float:
    began = time.perf_counter()
    await pool.chat_completion([{"role": "user", "content": f"poem {i}"}], "judge", **settings)
    return time.perf_counter() - began


async def main() -> None:
    async with FakeJudge(latency_s=0.15) as slow, FakeJudge(latency_s=0.03) as quick:
        sources = [
            OpenAISource("own-gpu", slow.url, api_key="k", max_concurrent=8),
            OpenAISource("cloud", quick.url, api_key="k", price=2.0, requests_per_min=12_000),
            CallableSource("length", length_reward, max_concurrent=4),
        ]
        table = Table("tasks", "mean s", "last s", "own-gpu", "cloud", title="60 judgements, three times")
        async with ComputePool(sources) as pool:
            for name, settings in {
                "no hurry": {},
                "within 0.8 s": {"deadline_s": 0.8},
            }.items():
                slow.reset()
                quick.reset()
                took = await asyncio.gather(*(timed(pool, i, **settings) for i in range(60)))
                served = str(slow.counters.received), str(quick.counters.received)
                table.add_row(name, f"{mean(took):.2f}", f"{max(took):.2f}", *served)
            urgent = [timed(pool, i, priority=0) for i in range(20)]
            patient = [timed(pool, i, priority=9) for i in range(40)]
            took = await asyncio.gather(*patient, *urgent)
            table.add_row("priority 9", f"{mean(took[:40]):.2f}", f"{max(took[:40]):.2f}", "", "")
            table.add_row("priority 0, sent last", f"{mean(took[40:]):.2f}", f"{max(took[40:]):.2f}", "", "")
            lengths = await asyncio.gather(*(pool.call(f"poem {i}") for i in range(20)))
            state = pool.snapshot()
        Console(width=100).print(table)
        print(f"20 length rewards beside them, mean {mean(lengths):.2f}")
        for source in state["sources"]:
            print(f"{source['name']:8} {source['state']:8} done {source['done']:3}  spend {source['spend']:.6f}")


if __name__ == "__main__":
    asyncio.run(main())
