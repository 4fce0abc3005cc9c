"""`ScheduleConfig` under the import path of QReward 0.1.7; re-exports only."""

from qreward.schedule.config import UNSET as _sentinel_none
from qreward.schedule.config import Priority, ScheduleConfig

__all__ = ["Priority", "ScheduleConfig", "_sentinel_none"]
