"""Memory that requests may hold: bytes of bodies, handed out first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """At most `capacity` bytes are out at a time. Used from the event loop only."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.peak = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, size: int) -> None:
        """Wait for *size* bytes; *size* must not exceed the capacity."""
        if not self._waiting and self.used + size <= self.capacity:
            self._take(size)
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.release(size)
            raise

    def release(self, size: int) -> None:
        """Give *size* bytes back."""
        self.used -= size
        while self._waiting:
            need, granted = self._waiting[0]
            if granted.done():
                self._waiting.popleft()
                continue
            if self.used + need > self.capacity:
                return
            self._waiting.popleft()
            self._take(need)
            granted.set_result(None)

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return sum(not granted.done() for _, granted in self._waiting)

    def _take(self, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)
