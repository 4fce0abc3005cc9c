"""debug=True: one line per call that says what happened to it.

python examples/schedule/schedule_debug.py
"""

import asyncio
import logging

from qreward.utils import schedule

logging.basicConfig(level=logging.DEBUG, format="%(levelname)s %(name)s  %(message)s")
logging.getLogger("asyncio").setLevel(logging.WARNING)
moods = iter(["hangs up", "hangs up", "answers"])


@schedule(retry_times=3, retry_interval=0.1, debug=True)
async def score(text: str) -> int:
    if next(moods) == "hangs up":
        raise ConnectionError("the judge hung up")
    return len(text)


@schedule(timeout=0.1, default_result=0, debug=True)
async def slow(text: str) -> int:
    await asyncio.sleep(10)
    return len(text)


async def main() -> None:
    print("score:", await score("a poem"))
    print("slow: ", await slow("a poem"))


if __name__ == "__main__":
    asyncio.run(main())
