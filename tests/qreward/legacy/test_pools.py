"""`RunningTaskPool`, `PriorityTaskQueue` and `AdaptiveRateLimiter`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from qreward.testing.moment import Now
from qreward.utils.scheduler import AdaptiveRateLimiter, Priority, PriorityTaskQueue, RunningTaskPool


@pytest.fixture
def _no_pools() -> Iterator[None]:
    RunningTaskPool.global_task_pool.clear()
    yield
    RunningTaskPool.global_task_pool.clear()


# -- RunningTaskPool ---------------------------------------------------------------------------------------------------


def test_task_pool_compares_with_the_peak(now: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the threshold there is room; above it while the remembered peak exceeds the count times *multiply*."""
    monkeypatch.setattr(time, "time", now)
    pool = RunningTaskPool(window_max_size=3, window_interval=10, threshold=5)
    assert (pool.add(5), pool.can_submit()) == (5, True)
    assert (pool.add(5), pool.can_submit()) == (10, False)
    assert (pool.add(-3), pool.can_submit(), pool.can_submit(2)) == (7, True, False)


def test_task_pool_forgets_old_peaks(now: Now, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak counts for as many windows as the pool remembers."""
    monkeypatch.setattr(time, "time", now)
    pool = RunningTaskPool(window_max_size=3, window_interval=10, threshold=1)
    pool.add(20)
    pool.add(-15)
    rooms = []
    for _ in range(4):
        pool.add(0)
        rooms.append(pool.can_submit())
        now.s += 10
    assert rooms == [True, True, True, False]


@pytest.mark.usefixtures("_no_pools")
def test_task_pools_by_key() -> None:
    """One pool per key, kept in the class's dictionary."""
    pool = RunningTaskPool.get_pool("a", threshold=7)
    assert RunningTaskPool.get_pool("a") is pool
    assert RunningTaskPool.get_pool("b") is not pool
    assert set(RunningTaskPool.global_task_pool) == {"a", "b"}


def test_less_than_is_deprecated() -> None:
    """The old name warns and answers the same."""
    with pytest.warns(DeprecationWarning, match="less_than is deprecated"):
        assert RunningTaskPool().less_than()


# -- PriorityTaskQueue -------------------------------------------------------------------------------------------------


def drained(queue: PriorityTaskQueue) -> list[Any]:
    return [queue.get() for _ in range(queue.queue_size)]


@pytest.mark.usefixtures("now")
def test_queue_order() -> None:
    """By priority, then by age; peek shows what get takes; empty gives None."""
    queue = PriorityTaskQueue()
    assert (queue.get(), queue.peek(), queue.is_empty) == (None, None, True)
    for item, priority in [("l", Priority.LOW), ("n1", 5), ("h", Priority.HIGH), ("n2", Priority.NORMAL), ("3", 3)]:
        queue.put(item, priority)
    assert (queue.peek(), queue.queue_size, queue.is_empty) == ("h", 5, False)
    assert drained(queue) == ["h", "3", "n1", "n2", "l"]


def test_queue_starvation(now: Now) -> None:
    """Who waited longer than the threshold goes with the first, oldest first; 0 switches that off."""
    orders = []
    for threshold in 60.0, 0.0:
        queue = PriorityTaskQueue(threshold)
        queue.put("low", 9)
        now.s += 61
        queue.put("high", 0)
        orders.append(drained(queue))
    assert orders == [["low", "high"], ["high", "low"]]


def test_queue_snapshot_and_clear(now: Now) -> None:
    """A snapshot lists what waits in order, with the priority that counts now; clear forgets it."""
    queue = PriorityTaskQueue(60.0)
    queue.put("a", 9)
    now.s += 61
    queue.put("b", 4)
    assert queue.snapshot() == [
        {"priority": 0, "sequence": 0, "wait_seconds": 61.0, "cancelled": False},
        {"priority": 4, "sequence": 1, "wait_seconds": 0.0, "cancelled": False},
    ]
    queue.clear()
    assert (queue.snapshot(), queue.is_empty) == ([], True)


def test_queue_refuses_what_is_no_priority() -> None:
    """Priorities outside 0 to 9 and negative thresholds are ValueErrors."""
    queue = PriorityTaskQueue()
    for priority in -1, 10:
        with pytest.raises(ValueError, match=r"priority must be in 0 .* to 9"):
            queue.put("x", priority)
    with pytest.raises(ValueError, match="starvation_threshold must be >= 0"):
        PriorityTaskQueue(-1)


# -- AdaptiveRateLimiter -----------------------------------------------------------------------------------------------


def after(limiter: AdaptiveRateLimiter, *results: tuple[float, bool]) -> int:
    for result in results:
        limiter.record(*result)
    return limiter.current_limit


@pytest.mark.usefixtures("now")
def test_limiter_follows_the_results() -> None:
    """Many failures or high latency halve the limit, few failures raise it by a tenth, in between it stays."""
    settings: dict[str, Any] = {"cooldown_seconds": 0, "latency_threshold": 2.0}
    assert after(AdaptiveRateLimiter(100, **settings), (0.1, True)) == 110
    assert after(AdaptiveRateLimiter(100, **settings), (0.1, False)) == 50
    assert after(AdaptiveRateLimiter(100, **settings), (2.1, True)) == 50
    middling = AdaptiveRateLimiter(100, cooldown_seconds=1e9)
    assert after(middling, (0.1, True), (0.1, True), (0.1, True), (0.1, False)) == 110


def test_limiter_stays_within_its_bounds_and_cools_down(now: Now) -> None:
    """It never leaves [limit_min, limit_max] and changes once per cooldown."""
    limiter = AdaptiveRateLimiter(1000, limit_min=40, limit_max=100, cooldown_seconds=5.0)
    assert limiter.current_limit == 100
    assert after(limiter, *[(0.1, False)] * 10) == 50
    now.s += 5
    assert after(limiter, (0.1, False)) == 40


def test_limiter_snapshot_covers_the_window(now: Now) -> None:
    """Results older than the window no longer count."""
    limiter = AdaptiveRateLimiter(100, window_seconds=10.0, cooldown_seconds=1e9)
    limiter.record(9.0, False)
    now.s += 6
    limiter.record(1.0, True)
    limiter.record(2.0, False)
    now.s += 5
    assert limiter.snapshot() == {"current_limit": 50, "total_records": 2, "error_rate": 0.5, "avg_latency": 1.5}
    now.s += 10
    assert limiter.snapshot() == {"current_limit": 50, "total_records": 0, "error_rate": 0.0, "avg_latency": 0.0}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"limit_min": 5, "limit_max": 2}, "limit_min must be <= limit_max"),
        ({"error_threshold": 0.0}, r"error_threshold must be in \(0, 1\]"),
        ({"error_threshold": 1.5}, r"error_threshold must be in \(0, 1\]"),
    ],
)
def test_limiter_refuses_impossible_bounds(wrong: dict[str, Any], message: str) -> None:
    """Bounds that cannot work are ValueErrors."""
    with pytest.raises(ValueError, match=message):
        AdaptiveRateLimiter(100, **wrong)
