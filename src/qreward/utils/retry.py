"""`retry` under the import path of QReward 0.1.7; re-exports only."""

from qreward.retrying import retry
from qreward.types import RetryPredicate

__all__ = ["RetryPredicate", "retry"]
