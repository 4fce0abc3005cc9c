"""OpenTelemetry for scheduled calls: counters, histograms, a span per call and a child span per attempt.

The API package is imported when an exporter is made. Without it, or with ``QREWARD_OTEL_ENABLED=false``, an exporter
does nothing.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import threading
from typing import Any

from qreward.events import Attempt, Call, Observer
from qreward.telemetry.instruments import MAX_KEYS, Instruments
from qreward.telemetry.metrics import Recorder, ScheduleMetrics
from qreward.telemetry.noop import NoOpSpan

log = logging.getLogger("qreward.utils.scheduler.telemetry")

_ENV = "QREWARD_OTEL_ENABLED"
_OFF = frozenset({"false", "0", "no", "off"})
_CANCELLED = (asyncio.CancelledError, GeneratorExit)


@functools.cache
def _api() -> tuple[Any, Any] | None:
    """(opentelemetry.metrics, opentelemetry.trace), or None with one line in the log."""
    try:
        from opentelemetry import metrics, trace
    except ImportError:
        log.info("opentelemetry is not installed: telemetry exporters do nothing (pip install 'reward-service[otel]')")
        return None
    return metrics, trace


class _CallState:
    """What the exporter remembers of a running call."""

    __slots__ = ("context", "span", "waited_s")

    def __init__(self, span: Any, context: Any) -> None:
        self.span = span
        self.context = context  # the parent of the attempts' spans
        self.waited_s = 0.0


class TelemetryExporter:
    """Sends what happens to the OpenTelemetry providers of the process; give it to `schedule(telemetry_exporter=...)`.

    Instruments (attributes ``qreward.function``, ``.key``, ``.outcome``, ``.priority``): counters
    ``qreward.schedule.total_calls`` (attempts), ``.success_count``, ``.failure_count``, ``.retry_count``,
    ``.hedge_count``, ``.rejected_count``; histograms ``.latency_ms`` and ``.wait_ms``. An exporter reports the first
    200 keys by name and the others as ``other``, so that a `key_func` with many values costs no unbounded memory.

    Spans: one per call, named like the function, below the caller's current span; one ``attempt`` per attempt below
    that, with its number, whether it is a hedge, the wait before it and the error.

    One exporter serves any number of functions and threads.
    """

    def __init__(self, meter_name: str = "qreward.scheduler", tracer_name: str = "qreward.scheduler") -> None:
        self._names = (meter_name, tracer_name)
        self._enabled = self._check_enabled()
        self._meter: Any = None
        self._tracer: Any = None
        self._trace: Any = None
        self._instruments: Instruments | None = None
        self._keys: set[str] = set()
        self._lock = threading.Lock()
        api = _api() if self._enabled else None
        if api is not None:
            metrics, self._trace = api
            self._meter = metrics.get_meter(meter_name)
            self._tracer = self._trace.get_tracer(tracer_name)
            self._instruments = Instruments(self._meter)

    def __reduce__(self) -> tuple[Any, ...]:
        # Meters and tracers belong to a process; a decorated function that travels to another one connects there.
        return type(self), self._names

    @classmethod
    def is_available(cls) -> bool:
        """Whether OpenTelemetry is installed and not switched off by the environment."""
        return cls._check_enabled()

    @staticmethod
    def _check_enabled() -> bool:
        return os.environ.get(_ENV, "").strip().lower() not in _OFF and _api() is not None

    # -- by hand -------------------------------------------------------------------------------------------------------

    def record(self, metrics: ScheduleMetrics) -> None:
        """Add the metrics of one call to the instruments."""
        if self._instruments is not None:
            self._instruments.record(metrics, self._label(metrics.key) if metrics.name else "")

    def start_span(self, name: str, attributes: dict[str, Any] | None = None) -> Any:
        """A started span below the current one; an inert one when telemetry is off. End it with `end_span`."""
        if self._tracer is None:
            return NoOpSpan()
        return self._tracer.start_span(name, attributes=attributes)

    def end_span(self, span: Any, metrics: ScheduleMetrics) -> None:
        """Write *metrics* on *span* and end it."""
        if not self._enabled or isinstance(span, NoOpSpan):
            return
        for name in ("total_calls", "success_count", "failure_count", "retry_count", "total_latency_ms"):
            span.set_attribute(f"qreward.{name}", getattr(metrics, name))
        if metrics.name:
            span.set_attribute("qreward.hedge_count", metrics.hedge_count)
            span.set_attribute("qreward.wait_ms", metrics.wait_ms)
            span.set_attribute("qreward.outcome", metrics.outcome)
            if metrics.error_type:
                span.set_attribute("error.type", metrics.error_type)
        span.end()

    def _label(self, key: str) -> str:
        if key in self._keys:
            return key
        with self._lock:
            if len(self._keys) >= MAX_KEYS:
                return "other"
            self._keys.add(key)
        return key

    # -- as the observer of a call -------------------------------------------------------------------------------------

    def call_started(self, call: Call) -> None:
        if self._tracer is None:
            return
        attributes = {"qreward.function": call.name, "qreward.key": call.key, "qreward.priority": call.priority}
        span = self.start_span(call.name, attributes)
        call.context = _CallState(span, self._trace.set_span_in_context(span))

    def attempt_started(self, call: Call, attempt: Attempt) -> None:
        state = call.context
        if not isinstance(state, _CallState):
            return
        waited_s, state.waited_s = call.wait_s - state.waited_s, call.wait_s
        attributes = {
            "qreward.attempt": attempt.number,
            "qreward.hedge": attempt.hedge,
            "qreward.wait_ms": 1e3 * waited_s,
        }
        attempt.context = self._tracer.start_span("attempt", context=state.context, attributes=attributes)

    def attempt_ended(self, call: Call, attempt: Attempt) -> None:
        span, attempt.context = attempt.context, None
        if span is None:
            return
        if isinstance(attempt.error, _CANCELLED):
            span.set_attribute("qreward.cancelled", True)
        elif attempt.error is not None:
            self._failed(span, attempt.error)
        span.end()

    def call_ended(self, call: Call) -> None:
        metrics = ScheduleMetrics.of(call)
        state, call.context = call.context, None
        if isinstance(state, _CallState):
            if call.outcome in ("error", "rejected") and call.error is not None:
                self._failed(state.span, call.error)
            self.end_span(state.span, metrics)
        self.record(metrics)

    def _failed(self, span: Any, error: BaseException) -> None:
        span.set_attribute("error.type", type(error).__name__)
        span.record_exception(error)
        span.set_status(self._trace.StatusCode.ERROR, type(error).__name__)


class _RecordsOnly:
    """The observer for an exporter that has nothing but `record(metrics)`."""

    def __init__(self, exporter: Recorder) -> None:
        self._exporter = exporter

    def call_started(self, call: Call) -> None:
        pass

    def attempt_started(self, call: Call, attempt: Attempt) -> None:
        pass

    def attempt_ended(self, call: Call, attempt: Attempt) -> None:
        pass

    def call_ended(self, call: Call) -> None:
        self._exporter.record(ScheduleMetrics.of(call))


def as_observer(exporter: Observer | Recorder | None) -> Observer | None:
    """*exporter* as an Observer: itself when its class is one, else its `record(metrics)` called once per call."""
    if exporter is None:
        return None
    if hasattr(type(exporter), "call_ended"):
        return exporter  # type: ignore[return-value]
    if not callable(getattr(exporter, "record", None)):
        raise TypeError(
            f"telemetry_exporter has neither record(metrics) nor the methods of qreward.events.Observer: {exporter!r}"
        )
    return _RecordsOnly(exporter)  # type: ignore[arg-type]
