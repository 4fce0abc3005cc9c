"""Telemetry of `schedule` through the public door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from qreward.errors import CircuitOpenError
from qreward.testing.virtual import run_virtual
from qreward.utils import schedule
from qreward.utils.scheduler import ScheduleMetrics, TelemetryExporter

from .conftest import Backend


def fails_once() -> Callable[[], str]:
    errors = iter([OSError("boom")])

    def body() -> str:
        for error in errors:
            raise error
        return "answer"

    return body


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_retried_call(backend: Backend, kind: str) -> None:
    """A call that failed once is one span with two attempts below it, below the caller's, async and sync alike."""
    decorate = schedule(retry_times=2, retry_interval=0, telemetry_exporter=TelemetryExporter(), priority=2)
    body = fails_once()

    @decorate
    async def func_async() -> str:
        return body()

    @decorate
    def func_sync() -> str:
        return body()

    with backend.tracers.get_tracer("test").start_as_current_span("outer"):
        assert (asyncio.run(func_async()) if kind == "async" else func_sync()) == "answer"

    spans = backend.spans
    (outer,), first, second = spans["outer"], *spans["attempt"]
    (call,) = next(found for name, found in spans.items() if name.endswith(f"func_{kind}"))
    assert call.parent is not None
    assert call.parent.span_id == outer.context.span_id
    assert {span.parent and span.parent.span_id for span in (first, second)} == {call.context.span_id}
    assert [(span.attributes or {}).get("error.type") for span in (first, second, call)] == ["OSError", None, None]
    assert [backend.total(name) for name in ("total_calls", "success_count", "retry_count")] == [2, 1, 1]
    assert backend.points("latency_ms")[0][0]["qreward.priority"] == 2


def test_a_hedged_call(backend: Backend) -> None:
    """The duplicate's span is marked as a hedge, the one that it overtook as cancelled."""
    calls = []

    @schedule(hedged_request_time=1.0, hedged_request_proportion=1.0, telemetry_exporter=TelemetryExporter())
    async def func() -> None:
        calls.append(1)
        await asyncio.sleep(60.0 if len(calls) == 1 else 0.5)

    run_virtual(func)
    seen = {
        (span.attributes or {})["qreward.hedge"]: "qreward.cancelled" in (span.attributes or {})
        for span in backend.spans["attempt"]
    }
    assert seen == {False: True, True: False}
    assert backend.total("hedge_count") == 1


async def test_a_refused_call(backend: Backend) -> None:
    """A call that the open breaker refuses is counted as rejected and its span has no attempt."""

    @schedule(circuit_breaker_threshold=1, telemetry_exporter=TelemetryExporter())
    async def func() -> None:
        raise OSError

    with pytest.raises(OSError):  # noqa: PT011 - any
        await func()
    with pytest.raises(CircuitOpenError):
        await func()
    assert (backend.total("rejected_count"), len(backend.spans["attempt"])) == (1, 1)


async def test_an_exporter_that_only_records() -> None:
    """An object with nothing but record(metrics) hears once per call, also of a failure."""
    seen: list[ScheduleMetrics] = []

    class Exporter:
        def record(self, metrics: ScheduleMetrics) -> None:
            seen.append(metrics)

    @schedule(telemetry_exporter=Exporter())
    async def func(error: Any = None) -> None:
        if error:
            raise error

    await func()
    with pytest.raises(KeyError):
        await func(KeyError("x"))
    assert [(metrics.outcome, metrics.error_type) for metrics in seen] == [("ok", ""), ("error", "KeyError")]
