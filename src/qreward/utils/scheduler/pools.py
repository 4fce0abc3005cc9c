"""`RunningTaskPool` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.pools import DEFAULT_THRESHOLD, DEFAULT_WINDOW_INTERVAL, DEFAULT_WINDOW_MAX_SIZE, RunningTaskPool

__all__ = ["DEFAULT_THRESHOLD", "DEFAULT_WINDOW_INTERVAL", "DEFAULT_WINDOW_MAX_SIZE", "RunningTaskPool"]
