"""How a judge limits its clients: token buckets for requests, and the tokens of a minute."""

from __future__ import annotations

from collections import deque

from qreward.testing.faults import Faults

_MINUTE_S = 60.0


class Bucket:
    """A token bucket that starts full."""

    def __init__(self) -> None:
        self._level: float | None = None
        self._at = 0.0

    def take(self, now: float, rate: float, depth: float, charge_rejected: bool = False) -> float:
        """0.0 when admitted, else the seconds until a token is there."""
        if self._level is None:
            self._level = depth
        else:
            self._level = min(depth, self._level + (now - self._at) * rate)
        self._at = now
        if self._level >= 1.0:
            self._level -= 1.0
            return 0.0
        if charge_rejected:
            self._level = max(self._level - 1.0, -depth)
        return (1.0 - self._level) / rate


class Limits:
    """All limits of one judge. A bucket holds one request at least, or its limit would admit none ever."""

    def __init__(self) -> None:
        self._buckets: dict[str | None, Bucket] = {}
        self._minute: deque[tuple[float, int]] = deque()
        self._tokens = 0

    def wait(self, now: float, faults: Faults, key: str) -> float:
        """Seconds until a request with this API key would be admitted; 0.0 = it is."""
        wait_s = self._tokens_wait(now, faults.tokens_per_min) if faults.tokens_per_min else 0.0
        rate = faults.key_rates.get(key, 0.0)
        if wait_s == 0.0 and rate > 0:
            wait_s = self._bucket(key).take(now, rate, max(1.0, rate), faults.charge_rejected)
        if wait_s == 0.0 and faults.rate > 0:
            depth = max(1.0, faults.burst or faults.rate)
            wait_s = self._bucket(None).take(now, faults.rate, depth, faults.charge_rejected)
        return wait_s

    def used(self, now: float, tokens: int) -> None:
        """An answer cost *tokens*."""
        self._minute.append((now, tokens))
        self._tokens += tokens
        self._forget(now)

    def _tokens_wait(self, now: float, allowed: int) -> float:
        self._forget(now)
        if self._tokens < allowed:
            return 0.0
        left = self._tokens
        for at, tokens in self._minute:
            left -= tokens
            if left < allowed:
                return at + _MINUTE_S - now
        return _MINUTE_S

    def _forget(self, now: float) -> None:
        minute = self._minute
        while minute and now - minute[0][0] >= _MINUTE_S:
            self._tokens -= minute.popleft()[1]

    def _bucket(self, key: str | None) -> Bucket:
        return self._buckets.setdefault(key, Bucket())
