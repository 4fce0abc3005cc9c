"""The OpenTelemetry instruments of an exporter."""

from __future__ import annotations

from typing import Any, Final

from qreward.errors import CircuitOpenError
from qreward.telemetry.metrics import ScheduleMetrics

MAX_KEYS: Final = 200
"""Keys that an exporter reports by name."""


class Instruments:
    """Counters and histograms on one meter; a metrics object without a function's name carries no attributes."""

    def __init__(self, meter: Any) -> None:
        def counter(name: str, description: str) -> Any:
            return meter.create_counter(f"qreward.schedule.{name}", unit="1", description=description)

        self._counters: tuple[tuple[str, Any], ...] = (
            ("total_calls", counter("total_calls", "Attempts of scheduled calls")),
            ("success_count", counter("success_count", "Calls that answered")),
            ("failure_count", counter("failure_count", "Attempts that failed")),
            ("retry_count", counter("retry_count", "Attempts after a failure")),
            ("hedge_count", counter("hedge_count", "Duplicates of slow attempts")),
        )
        self._rejected = counter("rejected_count", "Calls that an open circuit breaker refused")
        self._latency = meter.create_histogram(
            "qreward.schedule.latency_ms", unit="ms", description="Duration of calls, waits included"
        )
        self._wait = meter.create_histogram(
            "qreward.schedule.wait_ms", unit="ms", description="Time in the queue, under limits and in backoff"
        )

    def record(self, metrics: ScheduleMetrics, key: str) -> None:
        """Add one call under the label *key*."""
        attributes = _attributes(metrics, key)
        for name, counter in self._counters:
            value = getattr(metrics, name)
            if value:
                counter.add(value, attributes)
        if not metrics.total_calls and metrics.error_type == CircuitOpenError.__name__:
            self._rejected.add(1, attributes)
        self._latency.record(metrics.total_latency_ms, attributes)
        self._wait.record(metrics.wait_ms, attributes)


def _attributes(metrics: ScheduleMetrics, key: str) -> dict[str, Any] | None:
    if not metrics.name:
        return None
    attributes: dict[str, Any] = {
        "qreward.function": metrics.name,
        "qreward.key": key,
        "qreward.outcome": metrics.outcome,
    }
    if metrics.priority is not None:
        attributes["qreward.priority"] = metrics.priority
    return attributes
