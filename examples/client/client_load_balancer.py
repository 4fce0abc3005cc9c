"""Several endpoints as one: spread by strategy, and a call survives the death of its endpoint.

python examples/client/client_load_balancer.py
"""

import asyncio

from qreward.client import LoadBalanceStrategy, OpenAIChatProxy, OpenAIChatProxyManager
from qreward.testing import FakeJudge


async def main() -> None:
    async with FakeJudge(latency_s=0.01) as fast, FakeJudge(latency_s=0.08) as slow:
        for strategy in LoadBalanceStrategy:
            fast.reset()
            slow.reset()
            manager = OpenAIChatProxyManager(strategy)
            for key, judge, weight in (("fast", fast, 3), ("slow", slow, 1)):
                proxy = OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=1e9)
                manager.add_proxy(key, proxy, weight=weight)
            batch = [[{"role": "user", "content": f"poem {i}"}] for i in range(200)]
            await manager.batch_chat_completion(batch, "judge")
            print(f"{strategy.value:22} fast {fast.counters.received:4}   slow {slow.counters.received:4}")

            if strategy is LoadBalanceStrategy.ROUND_ROBIN:
                slow.faults.set(dead="reset")
                answers = await manager.batch_chat_completion(batch, "judge")
                slow.faults.set(dead="no")
                lost = sum(isinstance(answer, Exception) for answer in answers)
                print(f"  one endpoint dies: {lost} of {len(answers)} calls lost")
            await manager.close()


if __name__ == "__main__":
    asyncio.run(main())
