"""`LimiterPool` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.limiter import LimiterPool

__all__ = ["LimiterPool"]
