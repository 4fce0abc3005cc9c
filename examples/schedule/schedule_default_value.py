"""default_result: what a call returns instead of raising when everything failed.

python examples/schedule/schedule_default_value.py
"""

import asyncio

from qreward.utils import schedule


async def broken(text: str) -> float:
    raise ConnectionError("the judge is down")


async def main() -> None:
    once_more = {"retry_times": 1, "retry_interval": 0.05}
    print("a value:          ", await schedule(default_result=0.0, **once_more)(broken)("a poem"))
    print("None:             ", await schedule(default_result=None, **once_more)(broken)("a poem"))
    print("a function:       ", await schedule(default_result=lambda text: -len(text), **once_more)(broken)("a poem"))
    try:
        await schedule(**once_more)(broken)("a poem")
    except ConnectionError as exc:
        print("without a default:", repr(exc))


if __name__ == "__main__":
    asyncio.run(main())
