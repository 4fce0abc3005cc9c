"""`schedule` under the import path of QReward 0.1.7; re-exports only."""

from qreward.schedule.decorator import schedule

__all__ = ["schedule"]
