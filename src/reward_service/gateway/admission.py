"""Memory that requests may hold: bytes of bodies, handed out first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque

# A request for less than this part of the capacity does not wait behind larger ones.
SMALL_PART = 64


class ByteBudget:
    """At most `capacity` bytes are out at a time. Used from the event loop only.

    First come, first served, but small requests pass those that wait: bodies of slow clients, each of a large
    part of the capacity, would otherwise hold up everybody.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.used = 0
        self.peak = 0
        self._growing = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def acquire(self, size: int) -> None:
        """Wait for *size* bytes; *size* must not exceed the capacity."""
        is_next = not self._waiting or size * SMALL_PART <= self.capacity
        if is_next and self.used + size <= self.capacity:
            self._take(size)
            return
        await self._wait(size, first=False)

    async def grow(self, size: int) -> bool:
        """*size* bytes for somebody who holds some already; False when another one waits for that.

        One at a time: two that hold and wait could wait for each other.
        """
        if self.used + size <= self.capacity:
            self._take(size)
            return True
        if self._growing:
            return False
        self._growing = True
        try:
            await self._wait(size, first=True)
        finally:
            self._growing = False
        return True

    async def _wait(self, size: int, *, first: bool) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if first:
            self._waiting.appendleft((size, granted))
        else:
            self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            # Those behind may fit where this one did not.
            self.release(size if granted.done() and not granted.cancelled() else 0)
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
