"""The scheduler's public names under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.adaptive import AdaptiveRateLimiter
from qreward.legacy.breaker import CircuitBreaker, CircuitState
from qreward.legacy.context import ExecutionContext
from qreward.legacy.limiter import LimiterPool
from qreward.legacy.overload import OverloadChecker
from qreward.legacy.pools import RunningTaskPool
from qreward.legacy.priority_queue import PriorityTaskQueue
from qreward.legacy.runners import AsyncRunner, BaseRunner, SyncRunner
from qreward.reload import ConfigWatcher
from qreward.schedule import Priority, ScheduleConfig, schedule
from qreward.telemetry import ScheduleMetrics, TelemetryExporter

__all__ = [
    "AdaptiveRateLimiter",
    "AsyncRunner",
    "BaseRunner",
    "CircuitBreaker",
    "CircuitState",
    "ConfigWatcher",
    "ExecutionContext",
    "LimiterPool",
    "OverloadChecker",
    "Priority",
    "PriorityTaskQueue",
    "RunningTaskPool",
    "ScheduleConfig",
    "ScheduleMetrics",
    "SyncRunner",
    "TelemetryExporter",
    "schedule",
]
