"""`AsyncRunner` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.runners import AsyncRunner

__all__ = ["AsyncRunner"]
