"""Quotas per minute: what was estimated is reserved, what was really used is settled."""

from __future__ import annotations


class Quota:
    """*per_minute* units in a bucket of the size of *window_s* seconds' worth, refilled evenly.

    The bucket may be overdrawn by settling, never by reserving; one unit request larger than the bucket may go when
    the bucket is full.
    """

    __slots__ = ("_at", "_level", "depth", "rate")

    def __init__(self, per_minute: float, window_s: float = 60.0) -> None:
        if per_minute <= 0:
            raise ValueError(f"a quota must be above 0 per minute, got {per_minute!r}")
        self.rate = per_minute / 60.0
        self.depth = max(1.0, self.rate * window_s)
        self._level = self.depth
        self._at: float | None = None

    def _refill(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self.depth, self._level + max(0.0, now - self._at) * self.rate)
        self._at = now

    def wait(self, now: float, cost: float = 1.0) -> float:
        """Seconds until *cost* units may be reserved; 0.0 = now."""
        self._refill(now)
        missing = min(cost, self.depth) - self._level
        return max(0.0, missing / self.rate) if missing > 1e-9 else 0.0

    def reserve(self, now: float, cost: float = 1.0) -> None:
        """Take *cost* units; the caller has asked `wait`."""
        self._refill(now)
        self._level -= cost

    def settle(self, now: float, reserved: float, used: float) -> None:
        """*used* units were used where *reserved* had been taken."""
        self._refill(now)
        self._level = min(self.depth, self._level + reserved - used)

    def left(self, now: float) -> float:
        """Units that may be used now; negative when overdrawn."""
        self._refill(now)
        return self._level
