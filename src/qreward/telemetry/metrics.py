"""The numbers of one call, as callbacks and exporters get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from qreward.events import Call


class Recorder(Protocol):
    """Takes the metrics of a finished call."""

    def record(self, metrics: ScheduleMetrics) -> None: ...


@dataclass
class ScheduleMetrics:
    """One call of a scheduled function; never a running total.

    total_calls: how often the function itself was called: attempts, duplicates included; 0 when the circuit breaker
        refused. success_count: 1 when it answered, else 0. failure_count: failed attempts; duplicates that lost and
        cancelled attempts are none. retry_count, hedge_count: attempts after a failure, duplicates.
    total_latency_ms: the whole call in milliseconds, waits included; avg_latency_ms: that per attempt (0.0 without
        any). wait_ms: the part spent in the queue, under limits and in backoff.
    outcome: ``ok``, ``error``, ``default`` (the default result replaced a failure), ``cancelled`` or ``rejected``
        (circuit breaker). error_type: class name of the final exception, also behind a default result; else "".
    key, name, priority: the key whose limits applied, the function's qualified name, 0 (first) to 9 (last).
    """

    total_calls: int
    success_count: int
    failure_count: int
    retry_count: int
    total_latency_ms: float
    avg_latency_ms: float
    hedge_count: int = 0
    wait_ms: float = 0.0
    outcome: str = ""
    key: str = ""
    name: str = ""
    priority: int | None = None
    error_type: str = ""

    @classmethod
    def of(cls, call: Call) -> ScheduleMetrics:
        """The metrics of a call that has ended."""
        attempts, latency_ms = call.attempts, 1e3 * call.latency_s
        answered = call.outcome == "ok"
        failures = call.retries + (call.outcome in ("error", "default"))
        return cls(
            total_calls=attempts,
            success_count=int(answered),
            # A deadline that passes during a backoff ends the call without a further failed attempt.
            failure_count=min(failures, attempts - answered),
            retry_count=call.retries,
            total_latency_ms=latency_ms,
            avg_latency_ms=latency_ms / attempts if attempts else 0.0,
            hedge_count=call.hedges,
            wait_ms=1e3 * call.wait_s,
            outcome=call.outcome or "",
            key=call.key,
            name=call.name,
            priority=call.priority,
            error_type="" if call.error is None or answered else type(call.error).__name__,
        )

    @property
    def attempts(self) -> int:
        """The same as `total_calls`, under the name that says it."""
        return self.total_calls

    def export_to_otel(self, exporter: Recorder | None = None) -> None:
        """Hand the metrics to *exporter*; nothing happens without one."""
        if exporter is not None:
            exporter.record(self)
