"""Budget: extra requests stay a share of the calls, however they are asked for."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.budget import Budget

steps = st.lists(st.tuples(st.floats(0.0, 8.0), st.integers(0, 20), st.integers(0, 40)), max_size=60)


@given(ratio=st.floats(0.0, 1.0), floor=st.floats(0.0, 20.0), burst=st.floats(0.0, 20.0), steps=steps)
def test_extras_stay_within_the_allowance(
    ratio: float, floor: float, burst: float, steps: list[tuple[float, int, int]]
) -> None:
    """From the start to any moment: at most ratio × calls + floor × time + burst, however they are asked for."""
    budget = Budget(ratio, floor, burst)
    now, calls, extras = 0.0, 0, 0
    for pause, deposits, asked in steps:
        now += pause
        for _ in range(deposits):
            budget.deposit(now)
            calls += 1
        extras += sum(budget.withdraw(now) for _ in range(asked))
        assert extras <= ratio * calls + floor * now + burst + 1e-6


@given(
    ratio=st.floats(0.0, 1.0),
    floor=st.floats(0.0, 20.0),
    burst=st.floats(0.0, 20.0),
    patience=st.one_of(st.just(math.inf), st.floats(0.0, 20.0)),
    steps=steps,
)
def test_reservations_stay_within_the_allowance_when_they_go(
    ratio: float, floor: float, burst: float, patience: float, steps: list[tuple[float, int, int]]
) -> None:
    """Counted when they may go, not when they were asked for, reservations keep the same bound."""
    budget = Budget(ratio, floor, burst)
    now, calls, going = 0.0, 0, []
    calls_by: list[tuple[float, int]] = [(0.0, 0)]
    for pause, deposits, asked in steps:
        now += pause
        for _ in range(deposits):
            budget.deposit(now)
            calls += 1
        calls_by.append((now, calls))
        waits = [budget.reserve(now, patience) for _ in range(asked)]
        going += [now + wait for wait in waits if wait < math.inf]
        assert all(wait <= patience for wait in waits if wait < math.inf)
    for gone, moment in enumerate(sorted(going), start=1):
        earned = ratio * max(count for since, count in calls_by if since <= moment)
        assert gone <= earned + floor * moment + burst + 1e-6


@given(ratio=st.floats(0.01, 1.0), calls=st.integers(1, 400))
def test_the_share_is_reached(ratio: float, calls: int) -> None:
    """A steady stream of calls, each of which asks for an extra, gets its share of them, but for one."""
    budget = Budget(ratio, 0.0, 0.0)
    extras = 0
    for i in range(calls):
        budget.deposit(i * 0.01)
        extras += budget.withdraw(i * 0.01)
    assert extras >= math.floor(ratio * calls + 1e-6) - 1


def test_a_slow_key_earns_an_extra_as_well() -> None:
    """One call a minute at one tenth: the tenth call may have an extra."""
    budget = Budget(0.1, 0.0, 0.0)
    granted = []
    for i in range(20):
        budget.deposit(i * 60.0)
        granted.append(budget.withdraw(i * 60.0))
    assert [i for i, yes in enumerate(granted) if yes] == [9, 19]


def test_what_a_quiet_key_earned_long_ago_is_gone() -> None:
    """A thousand calls at one half do not pay for five hundred extras a minute later."""
    budget = Budget(0.5, 0.0, 3.0)
    for i in range(1000):
        budget.deposit(i * 0.001)
    assert budget.available(1.0) == pytest.approx(500.0, abs=5.0)
    assert sum(budget.withdraw(60.0) for _ in range(1000)) == 3


def test_quiet_time_does_not_pile_up() -> None:
    """An hour at ten a second leaves what the bucket holds, and at least one."""
    idle, without_burst = Budget(0.0, 10.0, 3.0), Budget(0.0, 0.1, 0.0)
    assert (idle.available(0.0), without_burst.available(0.0)) == (3.0, 0.0)
    assert sum(idle.withdraw(3600.0) for _ in range(100)) == 3
    assert [without_burst.withdraw(moment) for moment in (5.0, 9.9)] == [False, False]
    assert without_burst.withdraw(10.1)
    assert sum(without_burst.withdraw(3600.0) for _ in range(100)) == 1


@given(count=st.integers(1, 50))
def test_reservations_are_spaced_by_the_floor(count: int) -> None:
    """When the bucket is empty, reservations are granted one after another at the floor's rate."""
    budget = Budget(0.0, 10.0, 1.0)
    waits = [budget.reserve(0.0) for _ in range(count)]
    assert waits == pytest.approx([i / 10.0 for i in range(count)])


def test_an_impatient_reservation_takes_nothing() -> None:
    """Callers that give up because the wait is long do not make the wait longer for the next."""
    budget = Budget(0.0, 10.0, 1.0)
    assert budget.reserve(0.0, 0.5) == 0.0
    refused = [budget.reserve(0.0, 0.05) for _ in range(1000)]
    assert refused == [math.inf] * 1000
    assert budget.reserve(0.0, 0.5) == pytest.approx(0.1)


def test_without_a_floor_an_empty_budget_never_fills_by_itself() -> None:
    """A reservation that only calls could pay for is refused with infinity; ten tenths pay for one."""
    budget = Budget(0.1, 0.0, 1.0)
    assert (budget.reserve(0.0), budget.reserve(1000.0)) == (0.0, math.inf)
    for _ in range(10):
        budget.deposit(1000.0)
    assert budget.reserve(1000.0) == 0.0
    assert budget.reserve(1000.0) == math.inf


def test_a_clock_that_steps_back_brings_nothing() -> None:
    """The same second is not counted twice."""
    budget = Budget(0.0, 1.0, 1.0)
    assert budget.withdraw(10.0)
    for moment in (10.9, 10.0, 10.9, 10.0, 10.9):
        assert not budget.withdraw(moment)
    assert budget.withdraw(11.0)
