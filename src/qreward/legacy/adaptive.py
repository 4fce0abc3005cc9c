"""`AdaptiveRateLimiter`: a number that falls when many results are bad and rises when few are.

For code that applies the number itself. `schedule(adaptive_limit=True)` has a better one, `qreward.policy.adaptive`.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

from qreward.runtime import clock

DEFAULT_SLOWDOWN_FACTOR = 0.5
DEFAULT_SPEEDUP_FACTOR = 1.1
DEFAULT_COOLDOWN_SECONDS = 5.0


class AdaptiveRateLimiter:
    """Looks at the results of the last *window_seconds* whenever one comes, at most every *cooldown_seconds*.

    The limit is multiplied by *slowdown_factor* when more than *error_threshold* of them failed or they took longer
    than *latency_threshold* seconds on average; by *speedup_factor* when less than half of *error_threshold* failed.
    It stays in [*limit_min*, *limit_max*]. Thread-safe.

    Raises ValueError for limit_min > limit_max or an error_threshold outside (0, 1].
    """

    def __init__(
        self,
        initial_limit: int,
        limit_min: int = 10,
        limit_max: int = 500,
        error_threshold: float = 0.3,
        latency_threshold: float = 5.0,
        window_seconds: float = 10.0,
        slowdown_factor: float = DEFAULT_SLOWDOWN_FACTOR,
        speedup_factor: float = DEFAULT_SPEEDUP_FACTOR,
        cooldown_seconds: float = DEFAULT_COOLDOWN_SECONDS,
    ) -> None:
        if limit_min > limit_max:
            raise ValueError(f"limit_min must be <= limit_max, got {limit_min!r} and {limit_max!r}")
        if not 0 < error_threshold <= 1:
            raise ValueError(f"error_threshold must be in (0, 1], got {error_threshold!r}")
        self._limit_min = limit_min
        self._limit_max = limit_max
        self._error_threshold = error_threshold
        self._latency_threshold = latency_threshold
        self._window_seconds = window_seconds
        self._slowdown_factor = slowdown_factor
        self._speedup_factor = speedup_factor
        self._cooldown_seconds = cooldown_seconds
        self._lock = threading.Lock()
        self._limit = float(min(limit_max, max(limit_min, initial_limit)))
        self._records: deque[tuple[float, float, bool]] = deque()  # (when, latency, success)
        self._failures = 0
        self._latency_sum = 0.0
        self._adjusted_at: float | None = None

    @property
    def current_limit(self) -> int:
        """The limit now."""
        return int(self._limit)

    def record(self, latency_seconds: float, success: bool) -> None:
        """Take in the result of one call."""
        with self._lock:
            now = clock.monotonic()
            self._records.append((now, latency_seconds, success))
            self._failures += not success
            self._latency_sum += latency_seconds
            self._forget(now)
            if self._adjusted_at is None or now - self._adjusted_at >= self._cooldown_seconds:
                self._adjust(now)

    def snapshot(self) -> dict[str, Any]:
        """``current_limit``; ``total_records``, ``error_rate`` and ``avg_latency`` (seconds) of the window."""
        with self._lock:
            self._forget(clock.monotonic())
            error_rate, latency = self._rates()
            return {
                "current_limit": self.current_limit,
                "total_records": len(self._records),
                "error_rate": error_rate,
                "avg_latency": latency,
            }

    def _forget(self, now: float) -> None:
        records = self._records
        while records and records[0][0] < now - self._window_seconds:
            _, latency, success = records.popleft()
            self._failures -= not success
            self._latency_sum -= latency

    def _rates(self) -> tuple[float, float]:
        total = len(self._records)
        return (self._failures / total, self._latency_sum / total) if total else (0.0, 0.0)

    def _adjust(self, now: float) -> None:
        error_rate, latency = self._rates()
        if error_rate > self._error_threshold or latency > self._latency_threshold:
            factor = self._slowdown_factor
        elif error_rate < 0.5 * self._error_threshold:
            factor = self._speedup_factor
        else:
            return
        self._limit = min(self._limit_max, max(self._limit_min, self._limit * factor))
        self._adjusted_at = now
