"""A batch: answers in the order of the questions, failures in their places, progress on the way.

python examples/normal/batch_call.py
"""

import asyncio

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge


async def main() -> None:
    async with (
        FakeJudge(latency_s=0.02, p500=0.1) as judge,
        OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=1e9) as proxy,
    ):
        batch = [[{"role": "user", "content": f"poem {i}"}] for i in range(200)]
        batch[7] = []  # a request that the judge refuses

        def progress(done: int, total: int) -> None:
            if done % 50 == 0:
                print(f"  {done} of {total}")

        answers = await proxy.batch_chat_completion(batch, "judge", progress=progress)
        failed = {i: answer for i, answer in enumerate(answers) if isinstance(answer, Exception)}
        print(f"{len(answers) - len(failed)} answers; entry 100 says {answers[100]!r}")
        for index, error in failed.items():
            print(f"entry {index}: {type(error).__name__}: {error}")
        print(f"requests at the judge: {judge.counters.received}, a tenth of them failed and were repeated")


if __name__ == "__main__":
    asyncio.run(main())
