"""`TelemetryExporter` against the real OpenTelemetry SDK, read from memory."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import pytest

from qreward.errors import CircuitOpenError
from qreward.events import Attempt, Call
from qreward.telemetry import ScheduleMetrics, TelemetryExporter, as_observer
from qreward.telemetry.instruments import MAX_KEYS

from .conftest import Backend


def attempt(
    exporter: TelemetryExporter, call: Call, *, hedge: bool = False, error: BaseException | None = None
) -> None:
    call.attempts += 1
    record = Attempt(call.attempts, hedge, started=0.0)
    exporter.attempt_started(call, record)
    record.ended, record.error = 1.0, error
    exporter.attempt_ended(call, record)


def end(exporter: TelemetryExporter, call: Call, outcome: Any, error: BaseException | None = None) -> None:
    call.ended, call.outcome, call.error = call.started + 2.0, outcome, error
    exporter.call_ended(call)


def retried_call(exporter: TelemetryExporter, key: str = "pkg.f.k") -> None:
    """Fails, waits 0.25 s, is hedged and answers."""
    call = Call(key, "f", 4, started=100.0)
    exporter.call_started(call)
    attempt(exporter, call, error=OSError("boom"))
    call.retries, call.wait_s, call.hedges = 1, 0.25, 1
    attempt(exporter, call)
    attempt(exporter, call, hedge=True, error=GeneratorExit())
    end(exporter, call, "ok")


def test_instruments_and_attributes(backend: Backend) -> None:
    """Counters and histograms carry the numbers of the call with function, key, outcome and priority."""
    retried_call(TelemetryExporter())
    counters = ("total_calls", "success_count", "failure_count", "retry_count", "hedge_count")
    assert [backend.total(name) for name in counters] == [3, 1, 1, 1, 1]
    (attributes, latency), ((_, wait),) = backend.points("latency_ms")[0], backend.points("wait_ms")
    assert (latency.sum, wait.sum) == (2000.0, 250.0)
    assert attributes == {
        "qreward.function": "f",
        "qreward.key": "pkg.f.k",
        "qreward.outcome": "ok",
        "qreward.priority": 4,
    }


def test_one_span_per_call_and_one_per_attempt(backend: Backend) -> None:
    """The call's span stands below the caller's; each attempt's below the call's, with its number, hedge and error."""
    with backend.tracers.get_tracer("test").start_as_current_span("outer") as outer:
        retried_call(TelemetryExporter())
    (call,) = backend.spans["f"]
    first, second, third = backend.spans["attempt"]
    assert call.parent is not None
    assert call.parent.span_id == outer.get_span_context().span_id
    assert {span.parent and span.parent.span_id for span in (first, second, third)} == {call.context.span_id}

    assert [dict(span.attributes or {}) for span in (first, second, third)] == [
        {"qreward.attempt": 1, "qreward.hedge": False, "qreward.wait_ms": 0.0, "error.type": "OSError"},
        {"qreward.attempt": 2, "qreward.hedge": False, "qreward.wait_ms": 250.0},
        {"qreward.attempt": 3, "qreward.hedge": True, "qreward.wait_ms": 0.0, "qreward.cancelled": True},
    ]
    assert [span.status.is_ok for span in (first, second, third, call)] == [False, True, True, True]
    assert [event.name for event in first.events] == ["exception"]
    assert dict(call.attributes or {}).items() >= {"qreward.outcome": "ok", "qreward.retry_count": 1}.items()


@pytest.mark.parametrize(("outcome", "is_error"), [("error", True), ("rejected", True), ("default", False)])
def test_the_span_of_a_call_that_failed(backend: Backend, outcome: str, is_error: bool) -> None:
    """A failed call's span has the error; one that a default result replaced names its class and is no error."""
    exporter = TelemetryExporter()
    call = Call("k", "f", 5, started=0.0)
    exporter.call_started(call)
    end(exporter, call, outcome, CircuitOpenError("k", 1.0))
    (span,) = backend.spans["f"]
    assert span.status.is_ok is not is_error
    assert (span.attributes or {})["error.type"] == "CircuitOpenError"


@pytest.mark.parametrize("outcome", ["rejected", "default"])
def test_rejected_calls_are_counted(backend: Backend, outcome: str) -> None:
    """A call that the breaker refused counts as rejected, behind a default result too, and as no attempt."""
    exporter = TelemetryExporter()
    call = Call("k", "f", 5, started=0.0)
    end(exporter, call, outcome, CircuitOpenError("k", 1.0))
    assert (backend.total("rejected_count"), backend.total("total_calls")) == (1, 0)


def test_keys_are_bounded(backend: Backend) -> None:
    """However many keys there are, the instruments name a bounded number and call the rest `other`."""
    exporter = TelemetryExporter()
    for n in range(MAX_KEYS + 50):
        retried_call(exporter, f"k{n}")
    points = {attributes["qreward.key"]: point.value for attributes, point in backend.points("success_count")}
    assert len(points) == MAX_KEYS + 1
    assert points["other"] == 50


def test_by_hand(backend: Backend) -> None:
    """record, start_span and end_span work on metrics made by hand, without attributes where nothing is known."""
    exporter = TelemetryExporter("my.meter", "my.tracer")
    metrics = ScheduleMetrics(3, 2, 1, 1, 100.0, 33.3)
    exporter.record(metrics)
    span = exporter.start_span("mine", attributes={"custom": 1})
    exporter.end_span(span, metrics)
    assert [(attributes, point.value) for attributes, point in backend.points("total_calls")] == [({}, 3)]
    (ended,) = backend.spans["mine"]
    assert dict(ended.attributes or {}) == {
        "custom": 1,
        "qreward.total_calls": 3,
        "qreward.success_count": 2,
        "qreward.failure_count": 1,
        "qreward.retry_count": 1,
        "qreward.total_latency_ms": 100.0,
    }


@pytest.mark.parametrize("value", ["false", "0", "no", "off", " OFF "])
def test_switched_off_by_the_environment(backend: Backend, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """QREWARD_OTEL_ENABLED=false: not available, nothing recorded, inert spans."""
    monkeypatch.setenv("QREWARD_OTEL_ENABLED", value)
    assert not TelemetryExporter.is_available()
    exporter = TelemetryExporter()
    retried_call(exporter)
    with exporter.start_span("x") as span:
        span.set_attribute("a", 1)
    exporter.end_span(span, ScheduleMetrics(1, 1, 0, 0, 1.0, 1.0))
    assert backend.spans == {}
    assert backend.points("total_calls") == []
    monkeypatch.setenv("QREWARD_OTEL_ENABLED", "true")
    assert TelemetryExporter.is_available()


def test_without_opentelemetry() -> None:
    """Where the package is missing, exporters do nothing and the log says so once; importing needs it no more."""
    code = """
import logging, sys
sys.modules["opentelemetry"] = None  # import raises ImportError
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
from qreward.events import Call
from qreward.telemetry import TelemetryExporter, ScheduleMetrics
for exporter in TelemetryExporter(), TelemetryExporter():
    call = Call("k", "f", 5, 0.0, outcome="ok", ended=1.0)
    exporter.call_started(call)
    exporter.call_ended(call)
    span = exporter.start_span("x")
    exporter.end_span(span, ScheduleMetrics(1, 1, 0, 0, 1.0, 1.0))
print(TelemetryExporter.is_available())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(out) == 2
    assert out[0].startswith("opentelemetry is not installed")
    assert out[1] == "False"


def test_an_exporter_travels_to_another_process(backend: Backend) -> None:
    """A pickled exporter comes back as one that records under the same names."""
    exporter = pickle.loads(pickle.dumps(TelemetryExporter("my.meter")))
    retried_call(exporter)
    assert backend.total("success_count") == 1
    data = backend.reader.get_metrics_data()
    assert data is None or data.resource_metrics[0].scope_metrics[0].scope.name == "my.meter"


def test_as_observer() -> None:
    """Observers stay what they are; an object with only record(metrics) hears once per call; others are refused."""
    exporter = TelemetryExporter()
    assert as_observer(exporter) is exporter
    assert as_observer(None) is None

    seen: list[ScheduleMetrics] = []

    class OnlyRecord:
        record = staticmethod(seen.append)

    observer = as_observer(OnlyRecord())
    assert observer is not None
    call = Call("k", "f", 5, 0.0)
    observer.call_started(call)
    observer.attempt_started(call, Attempt(1, False, 0.0))
    observer.attempt_ended(call, Attempt(1, False, 0.0))
    call.attempts, call.ended, call.outcome = 1, 1.0, "ok"
    observer.call_ended(call)
    assert [(m.total_calls, m.success_count) for m in seen] == [(1, 1)]
    with pytest.raises(TypeError, match="neither record"):
        as_observer(object())  # type: ignore[arg-type]
