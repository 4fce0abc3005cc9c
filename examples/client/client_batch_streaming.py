"""Many streams at once: pieces as they come, failures reported, nothing left running.

python examples/client/client_batch_streaming.py
"""

import asyncio
from collections import defaultdict

from qreward.client import OpenAIChatProxy
from qreward.testing import FakeJudge


async def main() -> None:
    async with (
        FakeJudge(sse_tokens=4, sse_gap_s=0.01) as judge,
        OpenAIChatProxy(judge.url, api_key="k") as proxy,
    ):
        batch = [[{"role": "user", "content": f"poem number {i}"}] for i in range(6)]
        batch[3] = []  # refused by the judge
        texts: dict[int, str] = defaultdict(str)
        order: list[int] = []

        def failed(index: int, error: Exception) -> None:
            print(f"stream {index} failed: {type(error).__name__}")

        async for index, piece in proxy.batch_stream_chat_completion(
            batch, "judge", max_concurrent_streams=3, on_stream_error=failed
        ):
            order.append(index)
            texts[index] += piece
        print("pieces came from:", *order)
        for index in sorted(texts):
            print(f"stream {index}: {texts[index]!r}")
        print(f"at most {judge.counters.max_inflight} streams at once")


if __name__ == "__main__":
    asyncio.run(main())
