"""What a call was like: metrics for callbacks, OpenTelemetry instruments and spans for exporters."""

from qreward.telemetry.metrics import ScheduleMetrics
from qreward.telemetry.otel import TelemetryExporter, as_observer

__all__ = ["ScheduleMetrics", "TelemetryExporter", "as_observer"]
