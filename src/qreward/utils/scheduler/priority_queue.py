"""`PriorityTaskQueue` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.priority_queue import PriorityTaskQueue
from qreward.schedule.config import Priority

__all__ = ["Priority", "PriorityTaskQueue"]
