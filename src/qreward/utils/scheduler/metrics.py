"""`ScheduleMetrics` under the import path of QReward 0.1.7; re-exports only."""

from qreward.telemetry.metrics import ScheduleMetrics

__all__ = ["ScheduleMetrics"]
