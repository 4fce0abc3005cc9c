"""The circuit breaker of one key: closed, open, half open."""

from __future__ import annotations

from collections import deque
from typing import Literal

State = Literal["closed", "open", "half_open"]

_SLICES = 64  # results are counted in slices of the window: its memory is constant, its edge 1.6 % soft
_FEWEST = 10
_PROBE_LAPSES_S = 30.0


class Breaker:
    """Opens after *threshold* failures in a row, or when at least *min_calls* results of the last *window_s* seconds
    (None = max(2 × threshold, 10)) have a share of failures of *failure_rate*. *recovery_s* later, *half_open_max*
    probes at a time may go: the first success closes it, a failure opens it again.

    A result carries the generation that `admit` gave: results of an earlier state are ignored. A probe that has not
    ended after *recovery_s*, at least 30 s, no longer keeps the next one out.
    """

    __slots__ = (
        "_consecutive",
        "_failures",
        "_generation",
        "_open_until",
        "_probed_at",
        "_probes",
        "_slices",
        "_total",
        "failure_rate",
        "half_open_max",
        "min_calls",
        "recovery_s",
        "threshold",
        "window_s",
    )

    def __init__(
        self,
        threshold: int,
        recovery_s: float = 30.0,
        *,
        failure_rate: float = 0.5,
        window_s: float = 30.0,
        min_calls: int | None = None,
        half_open_max: int = 1,
    ) -> None:
        self.threshold = threshold
        self.recovery_s = recovery_s
        self.failure_rate = failure_rate
        self.window_s = window_s
        self.min_calls = min_calls
        self.half_open_max = half_open_max
        self._generation = 0
        self._probed_at = 0.0
        self._move(None)

    def configure(
        self,
        threshold: int,
        recovery_s: float,
        *,
        failure_rate: float | None = None,
        window_s: float | None = None,
        min_calls: int | None = None,
        half_open_max: int | None = None,
    ) -> None:
        """Change parameters and keep the state; None leaves one as it is. An open breaker keeps its moment."""
        self.threshold = threshold
        self.recovery_s = recovery_s
        self.failure_rate = self.failure_rate if failure_rate is None else failure_rate
        self.window_s = self.window_s if window_s is None else window_s
        self.min_calls = self.min_calls if min_calls is None else min_calls
        self.half_open_max = self.half_open_max if half_open_max is None else half_open_max

    def state(self, now: float) -> State:
        """The state at *now*; an open breaker becomes half open by the time alone."""
        if self._open_until is None:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    def retry_after(self, now: float) -> float:
        """Seconds until it is half open; 0.0 while it is not open. Half open, a running probe may still refuse."""
        return 0.0 if self._open_until is None else max(0.0, self._open_until - now)

    def admit(self, now: float) -> int | None:
        """The generation of a call that may start, or None."""
        if self._open_until is None:
            return self._generation
        if now < self._open_until:
            return None
        if self._probes >= self.half_open_max:
            if now - self._probed_at < max(self.recovery_s, _PROBE_LAPSES_S):
                return None
            self._probes -= 1
        self._probes += 1
        self._probed_at = now
        return self._generation

    def success(self, now: float, generation: int) -> None:
        """A call that `admit` let in answered."""
        if generation != self._generation:
            return
        if self._open_until is not None:
            self._move(None)
            return
        self._consecutive = 0
        self._record(now, 0)

    def failure(self, now: float, generation: int) -> None:
        """A call that `admit` let in failed."""
        if generation != self._generation:
            return
        if self._open_until is not None:
            self._move(now + self.recovery_s)
            return
        self._consecutive += 1
        self._record(now, 1)
        if self._consecutive >= self.threshold or self._rate_exceeded():
            self._move(now + self.recovery_s)

    def abandon(self, now: float, generation: int) -> None:
        """A call that `admit` let in was cancelled: it says nothing. A probe frees its slot."""
        if generation == self._generation and self._probes:
            self._probes -= 1

    def reset(self, now: float) -> None:
        """Closed, with nothing remembered."""
        self._move(None)

    def _move(self, open_until: float | None) -> None:
        self._generation += 1
        self._open_until = open_until
        self._probes = 0
        self._consecutive = self._total = self._failures = 0
        self._slices: deque[list[float]] = deque()  # [begin, results, failures]

    def _record(self, now: float, failed: int) -> None:
        slices = self._slices
        self._total += 1
        self._failures += failed
        if slices and now - slices[-1][0] < self.window_s / _SLICES:
            last = slices[-1]
            last[1] += 1
            last[2] += failed
            return
        slices.append([now, 1, failed])
        while now - slices[0][0] > self.window_s:
            _, results, failures = slices.popleft()
            self._total -= int(results)
            self._failures -= int(failures)

    def _rate_exceeded(self) -> bool:
        enough = max(2 * self.threshold, _FEWEST) if self.min_calls is None else self.min_calls
        return self._total >= enough and self._failures >= self.failure_rate * self._total
