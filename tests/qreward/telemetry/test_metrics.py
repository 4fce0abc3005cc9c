"""The numbers of one call."""

from __future__ import annotations

from typing import Any

import pytest

from qreward.events import Call
from qreward.telemetry import ScheduleMetrics


def ended(outcome: Any, **fields: Any) -> Call:
    call = Call("pkg.f.a", "f", 3, started=10.0, **fields)
    call.ended, call.outcome = 12.5, outcome
    return call


def test_a_call_that_answered_after_two_failures() -> None:
    """total_calls are attempts, failures are the attempts that failed, latency is wall time and its mean."""
    metrics = ScheduleMetrics.of(ended("ok", attempts=3, retries=2, wait_s=0.5))
    assert (metrics.total_calls, metrics.success_count, metrics.failure_count, metrics.retry_count) == (3, 1, 2, 2)
    assert (metrics.total_latency_ms, metrics.avg_latency_ms) == (2500.0, pytest.approx(833.33, abs=0.01))
    assert (metrics.wait_ms, metrics.key, metrics.name, metrics.priority) == (500.0, "pkg.f.a", "f", 3)
    assert (metrics.outcome, metrics.error_type, metrics.attempts) == ("ok", "", 3)


@pytest.mark.parametrize("outcome", ["error", "default"])
def test_a_call_that_failed(outcome: str) -> None:
    """Every attempt counts as failed; the exception's class is told, behind a default result too."""
    metrics = ScheduleMetrics.of(ended(outcome, attempts=2, retries=1, error=OSError("x")))
    assert (metrics.success_count, metrics.failure_count, metrics.error_type) == (0, 2, "OSError")


def test_hedges_are_no_failures() -> None:
    """A duplicate counts as an attempt and a hedge, its loss is no failure."""
    metrics = ScheduleMetrics.of(ended("ok", attempts=2, hedges=1))
    assert (metrics.total_calls, metrics.hedge_count, metrics.failure_count) == (2, 1, 0)


def test_a_refused_call() -> None:
    """A call that the breaker refuses has no attempt, no failure and no mean."""
    metrics = ScheduleMetrics.of(ended("rejected"))
    assert (metrics.total_calls, metrics.failure_count, metrics.avg_latency_ms) == (0, 0, 0.0)


def test_a_deadline_during_a_backoff() -> None:
    """A timeout that strikes between two attempts does not invent a failed attempt."""
    assert ScheduleMetrics.of(ended("error", attempts=1, retries=1, error=TimeoutError())).failure_count == 1


def test_export_to_otel() -> None:
    """export_to_otel hands the metrics to the exporter, and to nobody without one."""
    seen: list[ScheduleMetrics] = []

    class Exporter:
        def record(self, metrics: ScheduleMetrics) -> None:
            seen.append(metrics)

    metrics = ScheduleMetrics(5, 4, 1, 2, 150.0, 30.0)
    metrics.export_to_otel(None)
    metrics.export_to_otel(Exporter())
    assert seen == [metrics]
