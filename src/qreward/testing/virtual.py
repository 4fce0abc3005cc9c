"""Virtual time for asyncio: waits of hours pass in milliseconds, in the order of the clock."""

from __future__ import annotations

import asyncio
import contextlib
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

from qreward.runtime import clock

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_DAY_S = 86400.0
_SHOWN = 5


class Deadlock(RuntimeError):
    """Everything waits, and neither a timer nor a thread will wake anybody."""


class _Selector(selectors.DefaultSelector):
    """Never sleeps on a timer: it looks for real events and otherwise moves the clock."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        loop = self.loop
        if timeout is None or loop.waits_for_thread:
            # Only threads and sockets live outside of virtual time; without any, nobody can come.
            lonely = threading.active_count() == 1 and len(self.get_map()) == 1
            ready = super().select(0 if lonely else loop.patience_s)
            if ready:
                return ready
            loop.give_up_threads()
        if timeout is None:
            raise Deadlock(f"every task waits and no timer is set; waiting: {_waiting(loop)}")
        loop.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while something runs and jumps to the next timer when all wait.

    Work in an executor is waited for before the clock jumps; other threads are where `expect_thread` says so. Both, and
    a loop without timers, wait *patience_s* real seconds at most. Sockets are served, but the clock does not wait for
    them. Raises Deadlock when nothing can go on, TimeoutError after *limit_s* virtual seconds.
    """

    _latest = 0.0  # where the loops before stopped: what outlives a loop never sees time go back

    def __init__(self, patience_s: float = 5.0, limit_s: float | None = None) -> None:
        selector = _Selector()
        selector.loop = self
        self.patience_s = patience_s
        self._limit_s = limit_s
        self._now = self._began = max(time.monotonic(), VirtualLoop._latest)
        self._end = None if limit_s is None else self._began + limit_s
        self._expected: set[object] = set()
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def elapsed(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._now - self._began

    def advance(self, seconds: float) -> None:
        """Move the clock; TimeoutError when it passes the limit."""
        self._now += max(0.0, seconds)
        VirtualLoop._latest = self._now
        if self._end is not None and self._limit_s is not None and self._now > self._end:
            self._end = self._now + self._limit_s  # what cleans up has time of its own
            raise TimeoutError(f"not done after {self._limit_s:g} virtual seconds; waiting: {_waiting(self)}")

    @property
    def waits_for_thread(self) -> bool:
        """Whether a thread is at work that the clock waits for."""
        return bool(self._expected)

    def give_up_threads(self) -> None:
        """Wait for the threads at work no longer."""
        self._expected.clear()

    @contextlib.contextmanager
    def expect_thread(self) -> Iterator[None]:
        """Let the clock wait for a thread that calls `call_soon_threadsafe` before the block ends."""
        token = object()
        self._expected.add(token)
        try:
            yield
        finally:
            self._expected.discard(token)

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """As asyncio's; the clock waits for *func*."""
        future = super().run_in_executor(executor, func, *args)
        token = object()
        self._expected.add(token)
        future.add_done_callback(lambda _: self._expected.discard(token))
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        """As asyncio's; its timeout counts no virtual time."""
        with self.expect_thread():
            await super().shutdown_default_executor(*args)


def elapsed() -> float:
    """Virtual seconds since the running loop was made; RuntimeError outside of virtual time."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError(f"elapsed() needs a VirtualLoop, not {type(loop).__name__}; start with run_virtual(...)")
    return loop.elapsed()


def run_virtual(
    main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
    *,
    limit_s: float = _DAY_S,
    patience_s: float = 5.0,
) -> T:
    """The result of *main* run on a VirtualLoop, whose time is also the runtime's clock meanwhile.

    Raises Deadlock when nothing can go on, and TimeoutError after *limit_s* virtual seconds.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(patience_s, limit_s)) as runner:
        clock.install(runner.get_loop().time)
        try:
            return runner.run(main if asyncio.iscoroutine(main) else main())
        finally:
            clock.reset()


def _waiting(loop: asyncio.AbstractEventLoop) -> str:
    """The tasks that are not done, and where they stand."""
    tasks = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    shown = [f"{task.get_name()} in {_place(task)}" for task in tasks[:_SHOWN]]
    more = [f"{len(tasks) - _SHOWN} more"] if len(tasks) > _SHOWN else []
    return ", ".join(shown + more) or "no task"


def _place(task: asyncio.Task[Any]) -> str:
    name = getattr(task.get_coro(), "__qualname__", "?")
    stack = task.get_stack(limit=1)
    return f"{name}, line {stack[0].f_lineno} of {stack[0].f_code.co_filename}" if stack else name
