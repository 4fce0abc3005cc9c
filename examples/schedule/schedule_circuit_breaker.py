"""circuit_breaker_*: a judge that is down is left alone, and asked again with one probe.

python examples/schedule/schedule_circuit_breaker.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.errors import CircuitOpenError
from qreward.testing import FakeJudge
from qreward.utils import schedule


async def main() -> None:
    async with FakeJudge(dead="500") as judge, OpenAIChatProxy(judge.url, api_key="k") as proxy:

        @schedule(circuit_breaker_threshold=3, circuit_breaker_recovery=1.0)
        async def score(text: str) -> object:
            messages = [{"role": "user", "content": text}]
            return await proxy.client.chat.completions.create(model="judge", messages=messages)

        for i in range(6):
            try:
                await score("a poem")
            except CircuitOpenError as exc:
                print(f"call {i + 1}: refused, {exc}")
            except Exception as exc:
                print(f"call {i + 1}: {type(exc).__name__}")
        print(f"the judge saw {judge.counters.received} of 6 calls")
        judge.faults.set(dead="no")
        await asyncio.sleep(1.1)
        await score("a poem")
        print("after the recovery time a probe answered; the breaker is closed again")


if __name__ == "__main__":
    asyncio.run(main())
