"""`LimiterPool`: at most so many calls per window, for code that asks before it acts."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar


class LimiterPool:
    """*rate* calls in any *window* seconds, as a burst if they come so. Usable from threads and event loops at once.

    Callers are served in the order in which they ask: each gets the earliest moment that is left and sleeps until
    then, or is refused at once when that moment lies beyond its timeout.

    Raises ValueError unless both are positive.
    """

    global_lock: ClassVar[threading.Lock] = threading.Lock()
    global_limiter_pool: ClassVar[dict[str, LimiterPool]] = {}

    def __init__(self, rate: int, window: float, clock: Callable[[], float] = time.monotonic) -> None:
        if rate <= 0 or window <= 0:
            raise ValueError(f"rate / window must be positive, got {rate!r} / {window!r}")
        self.rate = rate
        self.window = float(window)
        self._clock = clock
        self._lock = threading.Lock()
        self._starts: deque[float] = deque()  # granted moments, future ones included, ascending

    @classmethod
    def get_pool(cls, key: str, rate: int, window: float) -> LimiterPool | None:
        """The pool of *key*; the first caller decides its rate. None when *rate* or *window* is not positive."""
        if rate <= 0 or window <= 0:
            return None
        with cls.global_lock:
            pool = cls.global_limiter_pool.get(key)
            if pool is None:
                pool = cls.global_limiter_pool[key] = cls(rate, window)
            return pool

    def allow(self, timeout: float | None = None) -> bool:
        """Wait for a place, at most *timeout* seconds (None = for ever); whether there was one."""
        start = self._reserve(timeout)
        if start is None:
            return False
        time.sleep(max(0.0, start - self._clock()))
        return True

    async def async_allow(self, timeout: float | None = None) -> bool:
        """`allow` for coroutines. A cancelled caller gives its place back."""
        start = self._reserve(timeout)
        if start is None:
            return False
        try:
            await asyncio.sleep(start - self._clock())
        except BaseException:
            with self._lock, contextlib.suppress(ValueError):
                self._starts.remove(start)
            raise
        return True

    def _reserve(self, timeout: float | None) -> float | None:
        """The moment of the next free place, taken; None when it lies more than *timeout* away."""
        with self._lock:
            now = self._clock()
            starts = self._starts
            while starts and starts[0] <= now - self.window:
                starts.popleft()
            free = starts[-self.rate] + self.window if len(starts) >= self.rate else now
            start = max(now, free, starts[-1] if starts else now)
            if timeout is not None and start - now > timeout:
                return None
            starts.append(start)
            return start
