"""metrics_callback: the numbers of every call, successes and failures alike.

python examples/schedule/schedule_metrics_callback.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.testing import Delay, FakeJudge
from qreward.utils import schedule
from qreward.utils.scheduler import ScheduleMetrics

seen: list[ScheduleMetrics] = []


async def main() -> None:
    async with FakeJudge() as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:

        @schedule(retry_times=2, retry_interval=0.05, hedged_request_time=0.2, metrics_callback=seen.append)
        async def score(text: str) -> object:
            messages = [{"role": "user", "content": text}]
            return await proxy.client.chat.completions.create(model="judge", messages=messages)

        await score("quiet")
        judge.script(500)
        await score("retried")
        judge.script(Delay(5))
        await score("hedged")
        judge.script(500, 500, 500)
        await asyncio.gather(score("failed"), return_exceptions=True)

    print(f"{'outcome':8} {'attempts':>8} {'retries':>8} {'hedges':>7} {'waited ms':>10} {'latency ms':>11}  error")
    for m in seen:
        print(
            f"{m.outcome:8} {m.attempts:8} {m.retry_count:8} {m.hedge_count:7} {m.wait_ms:10.1f} "
            f"{m.total_latency_ms:11.1f}  {m.error_type}"
        )


if __name__ == "__main__":
    asyncio.run(main())
