"""Virtual time: the clock jumps, the order holds, threads are waited for, a deadlock is an error."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from contextlib import suppress

import pytest

from qreward.runtime import clock
from qreward.testing import Deadlock, VirtualLoop, elapsed, run_virtual


def work() -> str:
    """Takes a thread some milliseconds, without the interpreter's lock."""
    return hashlib.pbkdf2_hmac("sha256", b"", b"", 20_000).hex()


def test_hours_pass_at_once() -> None:
    """Sleeping for most of a day takes no real time, and both the loop and the runtime's clock show it."""

    async def main() -> tuple[float, float]:
        began = clock.monotonic()
        await asyncio.sleep(80_000)
        return clock.monotonic() - began, elapsed()

    assert run_virtual(main()) == (pytest.approx(80_000), pytest.approx(80_000))


def test_timers_fire_in_order() -> None:
    """Concurrent waits end in the order of their times, each at its time."""
    order: list[tuple[int, int]] = []

    async def wait(seconds: int) -> None:
        await asyncio.sleep(seconds)
        order.append((seconds, round(elapsed())))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for seconds in (30, 10, 20):
                group.create_task(wait(seconds))

    run_virtual(main)
    assert order == [(10, 10), (20, 20), (30, 30)]


def test_timeouts_work() -> None:
    """asyncio.timeout counts virtual seconds."""

    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        return elapsed()

    assert run_virtual(main()) == pytest.approx(5)


def test_events_queues_and_callbacks_work() -> None:
    """What asyncio builds on its loop works as ever."""

    async def main() -> list[float]:
        event, queue = asyncio.Event(), asyncio.Queue[float](maxsize=1)
        asyncio.get_running_loop().call_later(3600, event.set)

        async def produce() -> None:
            await event.wait()
            for _ in range(2):
                await queue.put(elapsed())
                await asyncio.sleep(60)

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            return [round(await queue.get()) for _ in range(2)]

    assert run_virtual(main()) == [3600, 3660]


def test_a_deadlock_is_an_error() -> None:
    """A future that nobody completes ends the run with an error that names who waits and where."""

    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"no timer is set; waiting: Task-\d+ in .*stuck, line \d+ of .*test_virtual"):
        run_virtual(stuck(), patience_s=0.01)


def test_a_run_that_takes_too_long_is_stopped() -> None:
    """The limit is in virtual seconds; what cleans up afterwards has time for it."""
    cleaned = []

    async def main() -> None:
        try:
            while True:
                await asyncio.sleep(100)
        finally:
            await asyncio.sleep(500)
            cleaned.append(elapsed())

    with pytest.raises(TimeoutError, match=r"not done after 1000 virtual seconds; waiting: .*main"):
        run_virtual(main(), limit_s=1000)
    assert cleaned == [pytest.approx(1600, abs=1)]


def test_a_thread_can_wake_the_loop() -> None:
    """An answer from a thread is waited for where no timer is set."""

    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, work())).start()
        return await answer

    assert run_virtual(main()) == work()


def test_the_clock_waits_for_an_executor() -> None:
    """Work in an executor takes no virtual time, so that no timeout strikes it."""

    async def main() -> tuple[str, float]:
        async with asyncio.timeout(5):
            answer = await asyncio.to_thread(work)
        return answer, elapsed()

    assert run_virtual(main()) == (work(), 0.0)


def test_the_clock_waits_for_an_expected_thread() -> None:
    """Within expect_thread() it waits for any other thread too."""

    async def main() -> tuple[str, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        answer: asyncio.Future[str] = loop.create_future()
        threading.Thread(target=lambda: loop.call_soon_threadsafe(answer.set_result, work())).start()
        with loop.expect_thread():
            async with asyncio.timeout(5):
                return await answer, elapsed()

    assert run_virtual(main()) == (work(), 0.0)


def test_a_thread_that_is_stuck_stops_the_clock_no_longer_than_patience() -> None:
    """After patience_s real seconds the clock goes on without the thread, for good."""
    release = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        stuck = loop.run_in_executor(None, release.wait)
        try:
            await asyncio.sleep(5)
            assert not loop.waits_for_thread
        finally:
            release.set()
        await stuck
        return elapsed()

    assert run_virtual(main(), patience_s=0.01) == pytest.approx(5)


def test_elapsed_needs_virtual_time() -> None:
    """In another loop it says what is missing."""

    async def main() -> float:
        return elapsed()

    with pytest.raises(RuntimeError, match="needs a VirtualLoop"):
        asyncio.run(main())


def test_time_never_goes_back_from_one_run_to_the_next() -> None:
    """What outlives a run, as a registered limit does, sees its clock go on."""

    async def main() -> float:
        await asyncio.sleep(50_000)
        return clock.monotonic()

    assert run_virtual(main()) + 50_000 <= run_virtual(main()) + 1e-6


@pytest.mark.parametrize("fails", [False, True])
def test_the_real_clock_is_back_afterwards(fails: bool) -> None:
    """After the run, failed or not, the runtime reads real time again."""
    with suppress(TimeoutError):
        run_virtual(asyncio.sleep(100_000), limit_s=10 if fails else 200_000)
    assert abs(clock.monotonic() - time.monotonic()) < 60
