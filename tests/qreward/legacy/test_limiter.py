"""`LimiterPool`: so many calls per window, for code that asks first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.testing.virtual import run_virtual
from qreward.utils.scheduler import LimiterPool


@pytest.fixture
def _no_pools() -> Iterator[None]:
    LimiterPool.global_limiter_pool.clear()
    yield
    LimiterPool.global_limiter_pool.clear()


def in_virtual_time(rate: int, window: float, moments: list[float], timeout: float | None = None) -> list[float | None]:
    """When each of the callers that ask at *moments* was let through; None for refused."""

    async def main() -> list[float | None]:
        loop = asyncio.get_running_loop()
        began, pool = loop.time(), LimiterPool(rate, window, clock=loop.time)

        async def ask(moment: float) -> float | None:
            await asyncio.sleep(moment)
            return round(loop.time() - began, 6) if await pool.async_allow(timeout) else None

        return await asyncio.gather(*map(ask, moments))

    return run_virtual(main)


def test_a_burst_then_the_window() -> None:
    """The first *rate* callers go at once, the others when their places come, in the order in which they asked."""
    assert in_virtual_time(3, 2.0, [0.0] * 7) == [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0]


@given(
    rate=st.integers(1, 4),
    window=st.floats(0.5, 3.0),
    moments=st.lists(st.floats(0.0, 6.0), max_size=25).map(sorted),
)
def test_no_window_holds_more_than_rate(rate: int, window: float, moments: list[float]) -> None:
    """Whatever the arrivals, any window holds at most *rate* starts, and nobody is forgotten."""
    starts = in_virtual_time(rate, window, moments)
    times = sorted(start for start in starts if start is not None)
    assert len(times) == len(moments)
    assert all(later - earlier >= window - 1e-4 for earlier, later in zip(times, times[rate:], strict=False))


def test_timeout_refuses_at_once_and_takes_no_place() -> None:
    """Who cannot be served within the timeout hears it at once, and the next one finds the place free."""
    assert in_virtual_time(1, 2.0, [0.0, 0.5, 1.9, 4.0], timeout=1.0) == [0.0, None, 2.0, 4.0]


def test_a_cancelled_caller_gives_its_place_back() -> None:
    """The place of a caller that was cancelled while it waited goes to the next one."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        pool = LimiterPool(1, 10.0, clock=loop.time)
        began = loop.time()
        await pool.async_allow()
        waiting = asyncio.ensure_future(pool.async_allow())
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await pool.async_allow()
        return loop.time() - began

    assert run_virtual(main) == pytest.approx(10.0)


def test_threads_wait_for_their_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """`allow` sleeps exactly until the caller's place is free."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    pool = LimiterPool(2, 5.0, clock=lambda: 100.0)
    assert [pool.allow(), pool.allow(), pool.allow(), pool.allow(timeout=4.9), pool.allow(timeout=5.0)] == [
        True,
        True,
        True,
        False,
        True,
    ]
    assert [wait for wait in slept if wait] == [5.0, 5.0]


def test_threads_and_loops_share_the_places() -> None:
    """Concurrent threads take exactly *rate* places between them."""
    pool = LimiterPool(50, 3600.0)
    granted: list[bool] = []

    def ask() -> None:
        granted.extend([pool.allow(timeout=0.0) for _ in range(20)])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (sum(granted), len(granted)) == (50, 160)


@pytest.mark.usefixtures("_no_pools")
def test_pools_by_key() -> None:
    """One pool per key, with the settings of the first caller; no pool without a limit."""
    pool = LimiterPool.get_pool("a", 3, 1.0)
    assert pool is not None
    assert LimiterPool.get_pool("a", 9, 9.0) is pool
    assert (pool.rate, pool.window) == (3, 1.0)
    assert LimiterPool.get_pool("b", 3, 1.0) is not pool
    assert set(LimiterPool.global_limiter_pool) == {"a", "b"}
    assert LimiterPool.get_pool("c", 0, 1.0) is None
    assert LimiterPool.get_pool("c", 1, 0.0) is None


@pytest.mark.parametrize("settings", [(0, 1.0), (-1, 1.0), (1, 0), (1, -2.0)])
def test_no_limit_is_no_pool(settings: Any) -> None:
    """A pool without a positive rate and window is a ValueError."""
    with pytest.raises(ValueError, match="rate / window must be positive"):
        LimiterPool(*settings)
