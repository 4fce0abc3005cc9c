"""`ConfigWatcher` under the import path of QReward 0.1.7; re-exports only."""

from qreward.reload import ConfigWatcher

__all__ = ["ConfigWatcher"]
