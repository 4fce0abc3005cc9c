"""`AsyncRunner` and `SyncRunner`: a call as its `ExecutionContext` says, made by the driver that `schedule` uses."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any

from qreward.events import Call
from qreward.legacy.context import ExecutionContext
from qreward.runtime import clock
from qreward.runtime.driver import drive
from qreward.runtime.gate import Gate
from qreward.runtime.portal import run
from qreward.runtime.watch import PASS_THROUGH
from qreward.schedule.config import UNSET, ScheduleConfig
from qreward.schedule.plan import bind
from qreward.schedule.scheduled import default_value

log = logging.getLogger("qreward.utils.scheduler.base")


class BaseRunner(ABC):
    """How attempts start and what became of them; a task is an asyncio task or a future of a thread."""

    @abstractmethod
    def create_task(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Start ``func(*args, **kwargs)``."""

    @abstractmethod
    def get_task_result(self, task: Any) -> Any:
        """The result of a task that has ended; raises its exception."""

    @abstractmethod
    def get_task_exception(self, task: Any) -> BaseException | None:
        """The exception of a task that has ended, or None."""

    @abstractmethod
    def is_task_cancelled(self, task: Any) -> bool:
        """Whether the task was cancelled."""

    async def _drive(
        self, context: ExecutionContext, config: ScheduleConfig, attempt: Callable[[], Awaitable[Any]]
    ) -> Any:
        bound = bind(config)
        gate = Gate(context.key, bound.spec)
        call = Call(context.key, getattr(context.func, "__qualname__", context.key), bound.priority, clock.monotonic())

        async def limited() -> Any:
            if context.limiter is not None and not await context.limiter.async_allow(
                context.get_limiter_timeout(0) or None
            ):
                raise TimeoutError(f"no place under the limit of {context.key} within the timeout")
            return await attempt()

        try:
            context.result = await drive(bound.plan, gate, limited, call, context)
        except PASS_THROUGH as exc:
            context.result_exception = exc
            raise
        except BaseException as exc:
            context.result_exception = exc
        finally:
            context.finish = True
        if config.debug:
            log.debug(
                "[schedule] %s: execute finish, attempts=%d, failures=%s",
                context.key,
                context.cur_times,
                _failures(context),
            )
        return context.result


class AsyncRunner(BaseRunner):
    """Attempts are coroutines of the running event loop."""

    def create_task(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        """Start the coroutine function in a task of its own."""
        return asyncio.get_running_loop().create_task(func(*args, **kwargs))

    def get_task_result(self, task: asyncio.Task[Any]) -> Any:
        return task.result()

    def get_task_exception(self, task: asyncio.Task[Any]) -> BaseException | None:
        return task.exception()

    def is_task_cancelled(self, task: asyncio.Task[Any]) -> bool:
        return task.cancelled()

    async def execute_impl(self, context: ExecutionContext, config: ScheduleConfig, *args: Any, **kwargs: Any) -> Any:
        """The result of ``context.func``, or the default result of *config*; raises the last exception."""
        await self._drive(context, config, lambda: context.func(*args, **kwargs))
        result = _outcome(context, config, args, kwargs)
        return await result if inspect.isawaitable(result) else result


class SyncRunner(BaseRunner):
    """Attempts are functions in the threads of an executor, which the caller provides and shuts down."""

    def __init__(self) -> None:
        self._executor: Executor | None = None

    def set_executor(self, executor: Executor) -> None:
        """Use *executor* from now on."""
        self._executor = executor

    def create_task(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Start the function on the executor; RuntimeError when there is none."""
        if self._executor is None:
            raise RuntimeError("Executor not set; call set_executor(ThreadPoolExecutor()) first")
        return self._executor.submit(func, *args, **kwargs)

    def get_task_result(self, task: Future[Any]) -> Any:
        return task.result()

    def get_task_exception(self, task: Future[Any]) -> BaseException | None:
        return task.exception()

    def is_task_cancelled(self, task: Future[Any]) -> bool:
        return task.cancelled()

    def execute_impl(self, context: ExecutionContext, config: ScheduleConfig, *args: Any, **kwargs: Any) -> Any:
        """The result of ``context.func``, or the default result of *config*; raises the last exception."""

        def attempt() -> Awaitable[Any]:
            return asyncio.wrap_future(self.create_task(context.func, *args, **kwargs))

        run(lambda: self._drive(context, config, attempt))
        return _outcome(context, config, args, kwargs)


def _outcome(context: ExecutionContext, config: ScheduleConfig, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if context.result_exception is None:
        return context.result
    if config.default_result is UNSET:
        raise context.result_exception
    return default_value(config.default_result, args, kwargs)


def _failures(context: ExecutionContext) -> str:
    return "; ".join(context.result_exception_list) or "none"
