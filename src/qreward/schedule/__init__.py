"""The `schedule` decorator and its configuration."""

from qreward.schedule.config import Priority, ScheduleConfig
from qreward.schedule.decorator import schedule

__all__ = ["Priority", "ScheduleConfig", "schedule"]
