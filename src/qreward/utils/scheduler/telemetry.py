"""`TelemetryExporter` under the import path of QReward 0.1.7; re-exports only."""

from qreward.telemetry.noop import NoOpSpan as _NoOpSpan
from qreward.telemetry.otel import TelemetryExporter

__all__ = ["TelemetryExporter", "_NoOpSpan"]
