"""Virtual time for asyncio: waits of hours pass in milliseconds, in the order of the clock."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qreward.runtime import clock

T = TypeVar("T")


class Deadlock(RuntimeError):
    """Everything waits and no timer will wake anybody."""


class _Selector(selectors.DefaultSelector):
    """Never sleeps on a timer: it looks for real events and otherwise moves the clock."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            ready = super().select(self.loop.patience_s)  # a thread may still answer
            if not ready:
                raise Deadlock("every task waits and no timer is set; a future is never completed")
            return ready
        self.loop.advance(timeout)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while something runs and jumps to the next timer when all wait.

    *patience_s* is how long (real seconds) to wait for another thread before a deadlock is declared.
    """

    _latest = 0.0  # where the loops before stopped: what outlives a loop never sees time go back

    def __init__(self, patience_s: float = 5.0) -> None:
        selector = _Selector()
        selector.loop = self
        self.patience_s = patience_s
        self._now = max(time.monotonic(), VirtualLoop._latest)
        super().__init__(selector)

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock."""
        self._now += max(0.0, seconds)
        VirtualLoop._latest = self._now


def run_virtual(main: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]], *, limit_s: float = 86400.0) -> T:
    """The result of *main* run in virtual time, which is also the runtime's clock meanwhile.

    Raises Deadlock when nothing can go on, and TimeoutError after *limit_s* virtual seconds.
    """
    coroutine = main if asyncio.iscoroutine(main) else main()

    async def bounded() -> T:
        async with asyncio.timeout(limit_s):
            return await coroutine

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        loop = runner.get_loop()
        clock.install(loop.time)
        try:
            return runner.run(bounded())
        finally:
            clock.reset()
