"""Where the measurements of a test arrive."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import metrics as otel_metrics
from opentelemetry import trace as otel_trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Backend:
    """Providers that keep everything in memory."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider(metric_readers=[self.reader])
        self.memory = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.memory))

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """(attributes, point) of an instrument."""
        data = self.reader.get_metrics_data()
        found = []
        for resource in data.resource_metrics if data else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    if metric.name == f"qreward.schedule.{name}":
                        found += [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        return found

    def total(self, name: str) -> float:
        return sum(point.value for _, point in self.points(name))

    @property
    def spans(self) -> dict[str, list[ReadableSpan]]:
        named: dict[str, list[ReadableSpan]] = {}
        for span in self.memory.get_finished_spans():
            named.setdefault(span.name, []).append(span)
        return named


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    backend = Backend()
    monkeypatch.setattr(otel_metrics, "get_meter", backend.meters.get_meter)
    monkeypatch.setattr(otel_trace, "get_tracer", backend.tracers.get_tracer)
    yield backend
    backend.meters.shutdown()
    backend.tracers.shutdown()
