"""An allowance for extra requests, earned by ordinary ones."""

from __future__ import annotations

_EPSILON = 1e-9  # ten tenths are one
_INFINITY = float("inf")


class Budget:
    """A bucket: every call deposits *ratio*, time adds *floor_per_s*, *burst* is there to begin with.

    From the start to any moment, the extras are at most ratio × calls + floor_per_s × seconds + burst. Over any later
    stretch the place of *burst* is taken by what the bucket may hold: *burst*, or the deposits of the last *window_s*
    to 2 × *window_s* seconds, whichever is more, and never less than one.
    """

    __slots__ = ("_at", "_depth", "_earned", "_earned_at", "_level", "burst", "floor_per_s", "ratio", "window_s")

    def __init__(self, ratio: float, floor_per_s: float, burst: float, window_s: float = 10.0) -> None:
        self.ratio = ratio
        self.floor_per_s = floor_per_s
        self.burst = burst
        self.window_s = window_s
        self._level = burst
        self._depth = max(1.0, burst)
        self._at: float | None = None
        self._earned = 0.0  # deposits of the window that runs
        self._earned_at = 0.0

    def _refill(self, now: float) -> None:
        if self._at is None:
            self._at = self._earned_at = now
            return
        elapsed = now - self._at
        if elapsed <= 0.0:
            return
        self._at = now
        if now - self._earned_at >= self.window_s:
            recent = self._earned if now - self._earned_at < 2.0 * self.window_s else 0.0
            self._depth = max(1.0, self.burst, recent)
            self._earned, self._earned_at = 0.0, now
        if self._level < self._depth:
            self._level = min(self._depth, self._level + elapsed * self.floor_per_s)
        else:
            self._level = self._depth

    def deposit(self, now: float) -> None:
        """An ordinary call happened."""
        self._refill(now)
        self._earned += self.ratio
        if self._earned > self._depth:
            self._depth = self._earned
        level = self._level + self.ratio
        self._level = level if level < self._depth else self._depth

    def withdraw(self, now: float) -> bool:
        """Take one extra request now, or refuse."""
        self._refill(now)
        if self._level < 1.0 - _EPSILON:
            return False
        self._level -= 1.0
        return True

    def reserve(self, now: float, patience_s: float = _INFINITY) -> float:
        """Take one extra request; seconds to wait before it may go.

        Infinity, and nothing is taken, when the wait would be longer than *patience_s* or time alone never brings it.
        """
        self._refill(now)
        missing = 1.0 - self._level
        if missing <= _EPSILON:
            wait = 0.0
        elif self.floor_per_s > 0.0:
            wait = missing / self.floor_per_s
        else:
            wait = _INFINITY
        if wait > patience_s or wait == _INFINITY:
            return _INFINITY
        self._level -= 1.0
        return wait

    def available(self, now: float) -> float:
        """Extra requests that may go now; negative while reservations wait."""
        self._refill(now)
        return self._level
