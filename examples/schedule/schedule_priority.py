"""priority: who goes first when calls have to wait.

python examples/schedule/schedule_priority.py
"""

import asyncio
import time

from qreward.utils import schedule
from qreward.utils.scheduler import Priority


async def score(text: str) -> float:
    return time.perf_counter()


async def main() -> None:
    # Three decorations of one function share its key, and with it one queue.
    limited = {"limit_size": 20, "limit_window": 1.0}
    training = schedule(priority=Priority.HIGH, **limited)(score)
    evaluation = schedule(priority=Priority.NORMAL, **limited)(score)
    logging_only = schedule(priority=Priority.LOW, **limited)(score)
    began = time.perf_counter()
    names = {"logging": logging_only, "evaluation": evaluation, "training": training}
    started = {name: [asyncio.create_task(call(f"poem {i}")) for i in range(10)] for name, call in names.items()}
    print("submitted in this order, all at once; started:")
    for name, tasks in started.items():
        times = [await task - began for task in tasks]
        print(f"  {name:11} from {min(times):.2f} s to {max(times):.2f} s")


if __name__ == "__main__":
    asyncio.run(main())
