"""The gate of a proxy, seen as the semaphore and the rate limiter that QReward 0.1.7 had in its place."""

from __future__ import annotations

from collections import deque
from typing import Any

from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit


class SemaphoreView:
    """Reads like the `asyncio.Semaphore` of a proxy; ``async with`` holds one of its slots."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._permits: deque[Permit] = deque()

    @property
    def _value(self) -> int:
        """Slots that are free now; the adaptive limit, where it is on, decides how many there are."""
        return max(0, int(self._gate.limit) - self._gate.inflight)

    def locked(self) -> bool:
        """Whether the next call would have to wait for a slot."""
        return self._value == 0

    async def acquire(self) -> bool:
        """Take a slot."""
        permit = self._gate.try_enter()
        self._permits.append(permit if permit is not None else await self._gate.enter())
        return True

    def release(self) -> None:
        """Give a slot back; ValueError when none was taken here."""
        if not self._permits:
            raise ValueError("release() without acquire()")
        self._gate.abandoned(self._permits.popleft())

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: Any) -> None:
        self.release()

    def __repr__(self) -> str:
        return f"<SemaphoreView {self._value} free of {self._gate.limit:g}>"


class RateLimiterView:
    """Reads like the `aiolimiter.AsyncLimiter` of a proxy; ``async with`` takes one start from its rate."""

    def __init__(self, gate: Gate, max_rate: float, time_period: float) -> None:
        self._gate = gate
        self.max_rate = max_rate
        self.time_period = time_period

    async def acquire(self, amount: float = 1) -> None:
        """Wait until *amount* (rounded up) starts are allowed, and use them up."""
        for _ in range(max(1, -int(-amount // 1))):
            permit = self._gate.try_enter()
            self._gate.abandoned(permit if permit is not None else await self._gate.enter())

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: Any) -> None:
        return None

    def __repr__(self) -> str:
        return f"<RateLimiterView {self.max_rate:g} starts per {self.time_period:g} s>"
