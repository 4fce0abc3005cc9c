"""`schedule` and the pools under their oldest import path; re-exports only."""

from qreward.legacy.cancel import CANCELLED_ERRORS as _CancelledErrorGroups
from qreward.legacy.cancel import cancel_async_tasks as _cancel_async_task
from qreward.legacy.cancel import cancel_sync_tasks as _cancel_sync_task
from qreward.legacy.limiter import LimiterPool
from qreward.legacy.overload import OverloadChecker
from qreward.legacy.pools import RunningTaskPool
from qreward.schedule import ScheduleConfig, schedule
from qreward.schedule.config import UNSET as _sentinel_none

_overload_check = OverloadChecker.check
_get_max_wait_time = ScheduleConfig().adjust_wait_time

__all__ = [
    "LimiterPool",
    "RunningTaskPool",
    "_CancelledErrorGroups",
    "_cancel_async_task",
    "_cancel_sync_task",
    "_get_max_wait_time",
    "_overload_check",
    "_sentinel_none",
    "schedule",
]
