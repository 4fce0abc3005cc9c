"""Virtual time: the clock jumps, the order holds, a deadlock is an error."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from qreward.runtime import clock
from qreward.testing import Deadlock, VirtualLoop, run_virtual


def test_hours_pass_at_once() -> None:
    """Sleeping for a day takes no real time, and the runtime's clock shows the day."""

    async def main() -> float:
        began = clock.monotonic()
        await asyncio.sleep(80_000)
        return clock.monotonic() - began

    assert run_virtual(main()) == pytest.approx(80_000)


def test_timers_fire_in_order() -> None:
    """Concurrent waits end in the order of their times."""
    order: list[int] = []

    async def wait(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append(seconds)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for seconds in (30, 10, 20):
                group.create_task(wait(seconds))

    run_virtual(main)
    assert order == [10, 20, 30]


def test_timeouts_work() -> None:
    """asyncio.timeout counts virtual seconds."""

    async def main() -> None:
        async with asyncio.timeout(5):
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        run_virtual(main())


def test_a_deadlock_is_an_error() -> None:
    """A future that nobody completes ends the run with a clear error instead of hanging."""

    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    loop = VirtualLoop(patience_s=0.01)
    try:
        task = loop.create_task(main())
        with pytest.raises(Deadlock):
            loop.run_until_complete(task)
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    finally:
        loop.close()


def test_a_run_that_takes_too_long_is_stopped() -> None:
    """The limit is in virtual seconds."""

    async def main() -> None:
        while True:
            await asyncio.sleep(100)

    with pytest.raises(TimeoutError):
        run_virtual(main(), limit_s=1000)


def test_a_thread_can_wake_the_loop() -> None:
    """An answer from a thread is waited for."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, "from a thread")).start()
        return await answer

    assert run_virtual(main()) == "from a thread"


def test_the_real_clock_is_back_afterwards() -> None:
    """After the run the runtime reads real time again."""
    run_virtual(asyncio.sleep(100_000), limit_s=200_000)
    assert abs(clock.monotonic() - time.monotonic()) < 60
