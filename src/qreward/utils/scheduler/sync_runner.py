"""`SyncRunner` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.runners import SyncRunner

__all__ = ["SyncRunner"]
