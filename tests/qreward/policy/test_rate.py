"""WindowRate: the bound holds in every window, the rate is reached, the starts are spread."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.rate import WindowRate
from qreward.testing.counters import max_in_window


def start(rate: WindowRate, now: float, late_s: float = 0.0) -> float:
    """The moment of the next start: its timer is late once, then the waker looks again, as a gate does."""
    wait = rate.wait(now)
    now += wait + late_s if wait > 0 else 0.0
    while (wait := rate.wait(now)) > 0:
        now += wait
    rate.take(now)
    return now


def saturated(rate: WindowRate, calls: int, late_s: list[float]) -> list[float]:
    """Starts of a caller that always has work and whose timers are late by these seconds in turn."""
    now, starts = 0.0, []
    for i in range(calls):
        now = start(rate, now, late_s[i % len(late_s)])
        starts.append(now)
    return starts


def guard_s(window_s: float) -> float:
    return max(0.02 * window_s, min(0.005, 0.2 * window_s))


lateness = st.lists(st.floats(0.0, 0.004), min_size=1, max_size=20)
shares = st.lists(st.floats(0.0, 0.999), min_size=1, max_size=50)


@given(
    size=st.integers(1, 60),
    window_s=st.floats(0.01, 60.0),
    pauses=st.lists(st.one_of(st.just(0.0), st.floats(0.0, 2.0)), min_size=1, max_size=40),
    late=lateness,
    jitter=shares,
)
def test_no_window_holds_more_than_the_size(
    size: int, window_s: float, pauses: list[float], late: list[float], jitter: list[float]
) -> None:
    """Whatever the calls' pattern and the timers' lateness, and wherever the network moves a start in its guard."""
    rate, now, arrivals = WindowRate(size, window_s), 0.0, []
    for i in range(3 * size + 40):
        now = start(rate, now + pauses[i % len(pauses)] * window_s, late[i % len(late)])
        arrivals.append(now + jitter[i % len(jitter)] * guard_s(window_s))
    assert max_in_window(arrivals, window_s) <= size


@given(size=st.integers(1, 300), window_s=st.floats(0.5, 60.0), late=lateness)
def test_late_timers_cost_no_throughput(size: int, window_s: float, late: list[float]) -> None:
    """A caller that always has work gets 97 % of the rate with timers that are up to 4 ms late."""
    starts = saturated(WindowRate(size, window_s), 10 * size + 1, late)
    assert 10 * size / (starts[-1] - starts[0]) >= 0.97 * size / window_s


@given(size=st.integers(2, 300), stall=st.floats(0.02, 0.09))
def test_what_a_stalled_program_missed_is_made_up_for(size: int, stall: float) -> None:
    """A program that stands still for a part of every window still makes all starts of the window, but for 3 %."""
    rate, now, starts = WindowRate(size, 1.0), 0.0, []
    for i in range(10 * size + 1):
        now = start(rate, now + (stall if i % size == size // 2 else 0.0))
        starts.append(now)
    assert starts[-1] - starts[0] <= 10.2 * 1.03


@given(size=st.integers(2, 400), pauses=st.lists(st.floats(0.0, 3.0), min_size=1, max_size=9), late=lateness)
def test_no_burst_beyond_the_room_for_late_timers(size: int, pauses: list[float], late: list[float]) -> None:
    """In any stretch of d seconds there are at most (d + 10 ms) / (0.9 × window / size) starts and one."""
    rate, now, starts = WindowRate(size, 1.0), 0.0, []
    for i in range(2 * size + 20):
        now = start(rate, now + (pauses[i % len(pauses)] if i % 11 == 0 else 0.0), late[i % len(late)])
        starts.append(now)
    for stretch_s in (0.001, 0.01, 0.05, 0.1, 0.5):
        assert max_in_window(starts, stretch_s) <= (stretch_s + 0.01) * size / 0.9 + 1


@given(size=st.integers(2, 400))
def test_a_token_bucket_of_the_same_rate_never_refuses(size: int) -> None:
    """A server that refills size tokens a second and holds what comes in 10 ms, and one, is never overdrawn."""
    depth = 1.0 + 0.01 * size
    tokens, before = depth, 0.0
    for moment in saturated(WindowRate(size, 1.0), 4 * size, [0.0]):
        tokens = min(depth, tokens + (moment - before) * size) - 1.0
        before = moment
        assert tokens >= -1e-6


@given(
    changes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 60), st.floats(0.0, 1.5)), min_size=1, max_size=12)
)
def test_a_change_never_lets_a_window_exceed_the_size_of_the_moment(
    changes: list[tuple[int, int, float]],
) -> None:
    """Each start, under the size that then holds, counts the starts of its window under earlier sizes as well."""
    rate, now, starts = WindowRate(20, 1.0), 0.0, []
    for size, calls, pause in changes:
        rate.configure(size, 1.0)
        now += pause
        for _ in range(calls):
            now = start(rate, now)
            starts.append(now)
            assert sum(1 for moment in starts if moment > now - 1.0) <= size


def test_a_longer_window_counts_the_starts_of_the_shorter_one() -> None:
    """Ten starts per second become ten per minute: the next one waits for the minute."""
    rate = WindowRate(10, 1.0)
    now = saturated(rate, 10, [0.0])[-1]
    rate.configure(10, 60.0)
    assert rate.wait(now) > 59.0


def test_a_higher_size_allows_more_at_once() -> None:
    """A caller that waits under the old size starts under the new one."""
    rate = WindowRate(1, 60.0)
    rate.take(0.0)
    assert rate.wait(1.0) > 59.0
    rate.configure(600, 60.0)
    assert rate.wait(1.0) == 0.0


@pytest.mark.parametrize("window_s", [0.001, 0.05, 1.0, 60.0])
def test_the_bound_holds_without_a_log(window_s: float) -> None:
    """A size above a hundred thousand is kept by the spacing alone."""
    size = 100_001
    starts = saturated(WindowRate(size, window_s), 2 * size, [0.0])
    assert max_in_window(starts, window_s) <= size
    assert size / (starts[-1] - starts[-size - 1]) > 0.7 * size / window_s


@pytest.mark.parametrize("size", [1e6, 1e9, math.inf])
def test_an_enormous_rate_costs_nothing(size: float) -> None:
    """A million calls a second never wait, and nothing is kept of them."""
    rate = WindowRate(size, 1.0)
    waits = []
    for i in range(20_000):
        waits.append(rate.wait(i * 1.1e-6))
        rate.take(i * 1.1e-6)
    assert max(waits) == 0.0
    assert rate.left(0.0) == rate.size


def test_the_log_is_no_longer_than_the_size() -> None:
    """Starts of earlier windows leave, also after a larger size became a small one."""
    rate = WindowRate(1000, 1.0)
    now = saturated(rate, 5000, [0.0])[-1]
    assert len(rate._log or ()) <= 1000
    rate.configure(10, 1.0)
    for _ in range(20):
        now = start(rate, now)
    assert len(rate._log or ()) <= 10


def test_what_is_left_counts_the_last_window() -> None:
    """Starts within the window are used, older ones are not."""
    rate = WindowRate(5, 1.0)
    for moment in (0.0, 0.5, 0.9):
        rate.take(moment)
    assert rate.left(1.2) == 3


@pytest.mark.parametrize(("size", "window_s"), [(0, 1.0), (-1, 1.0), (5, 0.0), (5, -1.0), (math.nan, 1.0)])
def test_a_rate_that_cannot_be_is_refused(size: float, window_s: float) -> None:
    """The message shows both values."""
    with pytest.raises(ValueError, match=rf"size >= 1 and window > 0, got {size} per {window_s}"):
        WindowRate(size, window_s)
