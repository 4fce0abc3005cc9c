"""`ExecutionContext`: the state of one call, for the runners and for people who write their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qreward.events import Attempt, Call
from qreward.legacy.limiter import LimiterPool
from qreward.legacy.pools import RunningTaskPool
from qreward.policy.hedge import parse_hedge_time
from qreward.runtime import clock
from qreward.schedule.config import ScheduleConfig
from qreward.telemetry.metrics import ScheduleMetrics

_MIN_TIMEOUT_S = 0.001


class ExecutionContext:
    """What has happened in a call so far and what may happen next. Times are monotonic seconds.

    cur_times: attempts so far. cur_hedged_request_times: the number of the next duplicate, from 1.
    cur_speed_up_multiply: attempts that may run at once after failures. result_exception_list: ``"Type message"`` of
    every failed attempt. finish: the call has its result or its final exception.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        config: ScheduleConfig,
        key: str,
        running_task_pool: RunningTaskPool,
        limiter: LimiterPool | None,
    ) -> None:
        self.func = func
        self.config = config
        self.key = key
        self.running_task_pool = running_task_pool
        self.limiter = limiter
        self.priority = config.priority
        self.cur_times = 0
        self.cur_speed_up_multiply = 0
        self.cur_hedged_request_times = 1
        self.start_time = self.last_submit_time = clock.monotonic()
        self.result: Any = None
        self.result_exception: BaseException | None = None
        self.result_exception_list: list[str] = []
        self.finish = False

    # -- what may happen next ------------------------------------------------------------------------------------------

    def can_submit_task(self, run_tasks_count: int) -> bool:
        """Whether an attempt may start while *run_tasks_count* of them run."""
        if self.finish or self.is_timeout:
            return False
        if run_tasks_count == 0:
            return self.cur_times <= self.config.retry_times
        if self._speeds_up(run_tasks_count):
            return self.running_task_pool.can_submit(2)
        return self.is_hedge_submit(run_tasks_count)

    def is_hedge_submit(self, run_tasks_count: int) -> bool:
        """Whether that attempt would be a duplicate of a slow one."""
        delay_s = self._hedge_delay_s
        if delay_s is None or run_tasks_count == 0 or run_tasks_count < self.cur_speed_up_multiply:
            return False
        if self.cur_hedged_request_times > self.config.hedged_request_max_times:
            return False
        if clock.monotonic() - self.last_submit_time < delay_s:
            return False
        return self.running_task_pool.can_submit(1 + self.config.hedged_request_multiply)

    def compute_timeout(self, run_tasks_count: int) -> float:
        """Seconds to wait for the running attempts before the next decision; 0.0 = until one of them ends."""
        waits = []
        if self.config.timeout > 0:
            waits.append(self._remaining_s)
        if run_tasks_count and self._speeds_up(run_tasks_count):
            waits.append(float(self.config.retry_interval))
        delay_s = self._hedge_delay_s
        if delay_s is not None and run_tasks_count and self.cur_hedged_request_times <= self._max_hedges:
            waits.append(max(_MIN_TIMEOUT_S, self.last_submit_time + delay_s - clock.monotonic()))
        return min(waits, default=0.0)

    def get_limiter_timeout(self, run_tasks_count: int) -> float:
        """Seconds that an attempt may wait for the limiter; 0 = as long as it takes."""
        wait = float(self.config.retry_interval) if run_tasks_count else 0.0
        if self.config.timeout <= 0:
            return wait
        return min(wait, self._remaining_s) if run_tasks_count else self._remaining_s

    def _speeds_up(self, run_tasks_count: int) -> bool:
        return run_tasks_count < self.cur_speed_up_multiply and self.cur_times <= self.config.retry_times

    @property
    def _hedge_delay_s(self) -> float | None:
        return parse_hedge_time(self.config.hedged_request_time)[0]

    @property
    def _max_hedges(self) -> int:
        return self.config.hedged_request_max_times

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return clock.monotonic() - self.start_time

    @property
    def is_timeout(self) -> bool:
        """Whether the timeout has passed."""
        return 0 < self.config.timeout < self.elapsed

    @property
    def _remaining_s(self) -> float:
        return max(_MIN_TIMEOUT_S, self.config.timeout - self.elapsed)

    # -- what has happened ---------------------------------------------------------------------------------------------

    def mark_task_submitted(self) -> None:
        """An attempt has started."""
        self.cur_times += 1
        self.last_submit_time = clock.monotonic()

    def record_hedge(self) -> None:
        """The attempt is a duplicate."""
        self.cur_hedged_request_times += 1

    def record_exception(self, exception: BaseException) -> None:
        """An attempt has failed."""
        self.result_exception_list.append(f"{type(exception).__name__} {exception}")

    def can_increase_speed(self) -> bool:
        """Whether one more attempt at once is within ``speed_up_max_multiply``."""
        return self.cur_speed_up_multiply < self.config.speed_up_max_multiply

    def increase_speed(self) -> None:
        """Allow one more attempt at once."""
        if self.can_increase_speed():
            self.cur_speed_up_multiply += 1

    def reset_speed(self) -> None:
        """Back to one attempt at a time."""
        self.cur_speed_up_multiply = 0

    def build_metrics(self) -> ScheduleMetrics:
        """The call in numbers."""
        latency_ms = 1e3 * self.elapsed
        return ScheduleMetrics(
            total_calls=self.cur_times,
            success_count=int(self.cur_times > 0 and self.result_exception is None),
            failure_count=len(self.result_exception_list),
            retry_count=max(0, self.cur_times - self.cur_hedged_request_times),
            total_latency_ms=latency_ms,
            avg_latency_ms=latency_ms / self.cur_times if self.cur_times else 0.0,
            hedge_count=self.cur_hedged_request_times - 1,
            key=self.key,
            priority=int(self.priority),
        )

    # -- as the observer of a driven call ------------------------------------------------------------------------------

    def call_started(self, call: Call) -> None:
        pass

    def attempt_started(self, call: Call, attempt: Attempt) -> None:
        self.mark_task_submitted()
        if attempt.hedge:
            self.record_hedge()

    def attempt_ended(self, call: Call, attempt: Attempt) -> None:
        if isinstance(attempt.error, Exception):
            self.record_exception(attempt.error)

    def call_ended(self, call: Call) -> None:
        self.finish = True
