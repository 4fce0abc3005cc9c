"""Quotas per minute: reserved by estimate, settled by use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.quota import Quota

ARRIVALS = st.lists(
    st.tuples(
        st.floats(0.0, 20.0),  # seconds since the one before
        st.floats(0.1, 30.0),  # units reserved
        st.floats(0.0, 2.0),  # used, as a share of what was reserved
    ),
    min_size=1,
    max_size=60,
)


@given(st.floats(1.0, 600.0), ARRIVALS)
def test_what_is_used_stays_below_the_quota(per_minute: float, arrivals: list[tuple[float, float, float]]) -> None:
    """Up to any moment: one bucket, its refill, and what the last task took beyond its estimate, never more."""
    quota = Quota(per_minute)
    now, used, overdraft = 0.0, 0.0, 0.0
    for gap, cost, share in arrivals:
        cost = min(cost, quota.depth)
        now += gap
        now += quota.wait(now, cost)
        assert quota.wait(now, cost) < 1e-6
        quota.reserve(now, cost)
        quota.settle(now, cost, cost * share)
        used += cost * share
        overdraft = max(overdraft, cost * (share - 1.0))
        assert used <= quota.depth + now * per_minute / 60.0 + overdraft + 1e-6 * (1.0 + used)


@given(st.floats(1.0, 6000.0), st.floats(0.1, 500.0))
def test_the_wait_is_exact(per_minute: float, cost: float) -> None:
    """A moment before the wait is over the units are missing, at its end they are there."""
    quota = Quota(per_minute)
    cost = min(cost, quota.depth)
    quota.reserve(0.0, quota.depth)
    wait = quota.wait(0.0, cost)
    assert wait == pytest.approx(cost * 60.0 / per_minute)
    assert quota.wait(0.99 * wait, cost) > 0.0
    assert quota.wait(wait, cost) < 1e-6


def test_settling_gives_back_and_takes_more() -> None:
    """An answer shorter than estimated frees units at once, a longer one makes the next task wait."""
    quota = Quota(60.0)
    quota.reserve(0.0, 60.0)
    quota.settle(0.0, 60.0, 10.0)
    assert quota.left(0.0) == pytest.approx(50.0)
    quota.reserve(0.0, 50.0)
    quota.settle(0.0, 50.0, 55.0)
    assert quota.left(0.0) == pytest.approx(-5.0)
    assert quota.wait(0.0, 1.0) == pytest.approx(6.0)


def test_a_task_larger_than_the_bucket_goes_when_it_is_full() -> None:
    """Nothing waits for ever: what never fits starts from a full bucket and overdraws it for those that follow."""
    quota = Quota(60.0)
    quota.reserve(0.0, 30.0)
    assert quota.wait(0.0, 600.0) == pytest.approx(30.0)
    assert quota.wait(30.0, 600.0) == 0.0
    quota.reserve(30.0, 600.0)
    assert quota.wait(30.0, 1.0) == pytest.approx(541.0)


@given(st.floats(1.0, 600.0), st.lists(st.floats(0.0, 1e4), max_size=20))
def test_idle_time_saves_up_one_bucket_at_most(per_minute: float, gaps: list[float]) -> None:
    """However long nothing happens, and however much is given back, no more than a bucket is there."""
    quota = Quota(per_minute)
    now = 0.0
    for gap in gaps:
        now += gap
        assert quota.left(now) <= quota.depth
        quota.settle(now, gap, 0.0)
        assert quota.left(now) <= quota.depth


@pytest.mark.parametrize("per_minute", [0, -1, -0.5])
def test_a_quota_of_nothing_is_refused(per_minute: float) -> None:
    """A quota that lets nothing through is an error that shows the value."""
    with pytest.raises(ValueError, match=str(per_minute)):
        Quota(per_minute)
