"""`CircuitBreaker` for code that asks it itself."""

from __future__ import annotations

import logging
import threading

import pytest

from qreward.testing.moment import Now
from qreward.utils.scheduler import CircuitBreaker, CircuitState


def opened(now: Now, probes: int = 1) -> CircuitBreaker:
    breaker = CircuitBreaker(3, recovery_timeout=30.0, half_open_max_calls=probes, time_func=now)
    for _ in range(3):
        assert breaker.allow_request()
        breaker.record_failure()
    return breaker


def test_failures_in_a_row_open_it(now: Now) -> None:
    """Only failures in a row count; open, it lets nothing through until the recovery time has passed."""
    breaker = CircuitBreaker(3, time_func=now)
    for _ in range(20):
        breaker.record_failure()
        breaker.record_failure()
        breaker.record_success()
    assert breaker.state is CircuitState.CLOSED
    for _ in range(3):
        breaker.record_failure()
    assert (breaker.state, breaker.allow_request()) == (CircuitState.OPEN, False)
    now.s += 29.9
    assert not breaker.allow_request()
    now.s += 0.1
    assert breaker.state is CircuitState.HALF_OPEN


@pytest.mark.parametrize("asks", [True, False])
def test_a_probe_that_answers_closes_it(now: Now, asks: bool) -> None:
    """Half open, a success closes it, whether or not the caller asked before."""
    breaker = opened(now)
    now.s += 30
    if asks:
        assert breaker.allow_request()
    breaker.record_success()
    assert (breaker.state, breaker.allow_request()) == (CircuitState.CLOSED, True)


def test_a_probe_that_fails_opens_it_again(now: Now) -> None:
    """A failed probe starts a new recovery time."""
    breaker = opened(now)
    now.s += 30
    assert breaker.allow_request()
    breaker.record_failure()
    now.s += 29
    assert breaker.state is CircuitState.OPEN
    now.s += 1
    assert breaker.state is CircuitState.HALF_OPEN


def test_only_so_many_probes(now: Now) -> None:
    """Half open, at most half_open_max_calls may go; one that was cancelled makes room for another."""
    breaker = opened(now, probes=2)
    now.s += 30
    assert [breaker.allow_request() for _ in range(3)] == [True, True, False]
    breaker.record_cancelled()
    assert [breaker.allow_request() for _ in range(2)] == [True, False]


def test_results_from_before_change_nothing(now: Now) -> None:
    """What is recorded while it is open belongs to earlier calls: it neither closes it nor prolongs it."""
    breaker = opened(now)
    now.s += 15
    breaker.record_success()
    breaker.record_failure()
    assert breaker.state is CircuitState.OPEN
    now.s += 15
    assert breaker.state is CircuitState.HALF_OPEN


def test_reset(now: Now) -> None:
    """reset closes it and forgets the failures."""
    breaker = opened(now)
    breaker.reset()
    breaker.record_failure()
    breaker.record_failure()
    assert breaker.state is CircuitState.CLOSED


def test_transitions_are_logged(now: Now, caplog: pytest.LogCaptureFixture) -> None:
    """Every change of state is one INFO line."""
    with caplog.at_level(logging.INFO, logger="qreward.utils.scheduler.circuit_breaker"):
        breaker = opened(now)
        now.s += 30
        assert breaker.allow_request()
        breaker.record_success()
    changes = [record.getMessage().partition(": ")[2] for record in caplog.records]
    assert changes == ["CLOSED -> OPEN", "OPEN -> HALF_OPEN", "HALF_OPEN -> CLOSED"]


def test_threads_get_one_probe_between_them(now: Now) -> None:
    """Concurrent threads get exactly one probe."""
    breaker = opened(now)
    now.s += 30
    granted: list[bool] = []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        granted.append(breaker.allow_request())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == [False] * 7 + [True]
