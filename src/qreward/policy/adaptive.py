"""How many calls may be in flight, and how fast they may start, learned from what the server does.

Concurrency follows TCP. A slow start, clocked by successes, triples the limit per round trip while the limit is what
holds the callers back; the first sign of overload ends it. From then on the limit grows by one per round trip, lingers
below the ceiling at which it was cut, and hurries once it is well above that. An overload cuts it once, to a tenth
below the calls in flight but by no more than about half: results of calls that started before the cut belong to the
same episode. Signs of overload are an explicit refusal, a share of failures above `error_threshold` and, where
`latency_threshold_s` is set, a mean latency above it while the limit is nearly full. A lone stall, reset or 500 says
nothing about load.

Refusals for rate (429) teach a pace: see `learned_rate`. They cut the limit only while no rate is known. Other
refusals cut the limit; where more than 8 % of recent calls are refused all the same, they teach a pace as well. A
Retry-After of two seconds or more stops all starts until then, a minute at most.
"""

from __future__ import annotations

from typing import Any

from qreward.policy.learned_rate import LearnedRate

_CUT = 0.9
_MIN_SAMPLES = 20
_PAUSE_FROM_S = 2.0
_PAUSE_MAX_S = 60.0
_CLEAR_OF_CEILING = 1.1
_SLOW_START_STEP = 2.0
_REFUSAL_WEIGHT = 1.0 / 256.0
_REFUSED_TOO_OFTEN = 0.08


class AdaptiveLimit:
    """Concurrency from *initial*, within *minimum* to *maximum*, and a learned rate of *rate_min* per second or more.

    Not thread-safe. Times are of one monotonic clock; `limit` is an int, `rate` is starts per second or None.
    """

    __slots__ = (
        "_bad",
        "_bad_before",
        "_ceiling",
        "_cut_at",
        "_full_at",
        "_good",
        "_good_before",
        "_half_ends",
        "_inflight",
        "_latency",
        "_latency_before",
        "_maximum",
        "_minimum",
        "_pacer",
        "_refused",
        "_size",
        "_slow_start",
        "error_threshold",
        "latency_threshold_s",
        "limit",
        "window_s",
    )

    def __init__(
        self,
        initial: int,
        minimum: int,
        maximum: int,
        *,
        rate_min: float = 0.05,
        error_threshold: float = 0.3,
        latency_threshold_s: float | None = None,
        window_s: float = 10.0,
    ) -> None:
        if not rate_min > 0.0:
            raise ValueError(f"rate_min must be above 0 starts per second, got {rate_min}")
        self._pacer = LearnedRate(rate_min)
        self._size = float(initial)
        self._slow_start = True
        self._ceiling = float("inf")
        self._cut_at = float("-inf")
        self._inflight = 0
        self._full_at = float("-inf")
        self._refused = 0.0
        self.limit = initial
        self._good = self._good_before = 0
        self._bad = self._bad_before = 0
        self._latency = self._latency_before = 0.0
        self._half_ends = float("-inf")
        self.configure(
            minimum,
            maximum,
            error_threshold=error_threshold,
            latency_threshold_s=latency_threshold_s,
            window_s=window_s,
        )

    def configure(
        self,
        minimum: int,
        maximum: int,
        *,
        error_threshold: float = 0.3,
        latency_threshold_s: float | None = None,
        window_s: float = 10.0,
    ) -> None:
        """New bounds and thresholds; what was learned stays. ValueError when they contradict each other."""
        if not 1 <= minimum <= maximum:
            raise ValueError(f"adaptive limits need 1 <= minimum <= maximum, got {minimum} and {maximum}")
        if not 0.0 < error_threshold <= 1.0:
            raise ValueError(f"error_threshold must be above 0 and at most 1, got {error_threshold}")
        if latency_threshold_s is not None and not latency_threshold_s > 0.0:
            raise ValueError(f"latency_threshold_s must be above 0 seconds or None, got {latency_threshold_s}")
        if not window_s > 0.0:
            raise ValueError(f"window_s must be above 0 seconds, got {window_s}")
        self._minimum, self._maximum = minimum, maximum
        self.error_threshold = error_threshold
        self.latency_threshold_s = latency_threshold_s
        self.window_s = window_s
        self._resize(self._size)

    @property
    def rate(self) -> float | None:
        """Starts per second that are allowed now; None while no rate is known."""
        return self._pacer.pace

    def wait(self, now: float) -> float:
        """Seconds until the learned rate, or a pause that the server asked for, allows the next start."""
        wait = self._pacer.next_at - now
        if wait <= 0.0:
            return 0.0
        self._pacer.held = True
        return wait

    # -- results ---------------------------------------------------------------------------------------------------

    def started(self, now: float, inflight: int) -> None:
        """A call starts; *inflight* includes it."""
        self._inflight = inflight
        if inflight >= self.limit:
            self._full_at = now
        self._pacer.started(now)

    def succeeded(self, now: float, started_at: float, latency_s: float, inflight: int) -> None:
        """A call that started at *started_at* was answered after *latency_s*; *inflight* includes it."""
        self._inflight = inflight - 1
        if now >= self._half_ends:
            self._turn(now)
        if started_at > self._cut_at:
            self._good += 1
            self._latency += latency_s
        self._refused -= _REFUSAL_WEIGHT * self._refused
        if self.latency_threshold_s is not None and 4 * inflight >= 3 * self.limit:
            if self._too_slow(self.latency_threshold_s):
                self._cut(now, inflight)
                return
            if latency_s > self.latency_threshold_s:
                return
        # Where a rate is known, callers may be waiting for that: only a start that filled the limit proves saturation.
        if inflight >= self.limit and (self._pacer.pace is None or self._full_at >= started_at):
            self._grow()

    def overloaded(self, now: float, started_at: float, retry_after_s: float | None, status: int | None) -> None:
        """The server refused the call because it has too much to do."""
        inflight = self._inflight
        self._inflight = max(0, inflight - 1)
        self._refused += _REFUSAL_WEIGHT * (1.0 - self._refused)
        hint_s = None if retry_after_s is None or not retry_after_s >= 0.0 else min(float(retry_after_s), _PAUSE_MAX_S)
        first = self._pacer.pace is None
        # Some servers tell of a rate with a 503: cutting the limit does not help then, and refusals stay frequent.
        if status == 429 or self._refused > _REFUSED_TOO_OFTEN:
            self._pacer.refused(now, started_at, hint_s)
        if started_at > self._cut_at and (status != 429 or first):
            if status == 429:
                self._cut(now)
                self._ceiling = 0.0  # says nothing about how many calls may be in flight
            else:
                self._cut(now, inflight)
        if hint_s is not None and hint_s >= _PAUSE_FROM_S:
            self._pacer.pause(now, hint_s)

    def failed(self, now: float, started_at: float, timeout: bool) -> None:
        """The call failed on the server's side; only a large share of these is a sign of load."""
        self._inflight = max(0, self._inflight - 1)
        if now >= self._half_ends:
            self._turn(now)
        if started_at <= self._cut_at:
            return
        self._bad += 1
        bad = self._bad + self._bad_before
        total = bad + self._good + self._good_before
        if total >= _MIN_SAMPLES and bad > self.error_threshold * total:
            self._cut(now)

    def ignored(self, now: float, started_at: float) -> None:
        """The call ended without measuring anything: cancelled, or the client's own error."""
        self._inflight = max(0, self._inflight - 1)

    # -- the limit -------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        size = self._size
        if self._slow_start:
            step = _SLOW_START_STEP
        elif size > _CLEAR_OF_CEILING * self._ceiling:
            step = 0.25
        elif self._ceiling - 1.0 <= size <= self._ceiling:
            step = 1.0 / max(2.0 * size, 48.0)
        else:
            step = max(1.0, size / 64.0) / size
        self._resize(size + step)

    def _cut(self, now: float, inflight: int | None = None) -> None:
        size = self._size
        if inflight is not None:
            # A limit that also stands for starts per window may lie far above the calls in flight.
            size = max(0.5 * size, min(size, float(inflight)))
        self._slow_start = False
        self._ceiling = size
        self._cut_at = now
        self._good = self._good_before = 0
        self._bad = self._bad_before = 0
        self._latency = self._latency_before = 0.0
        self._resize(min(_CUT * size, size - 1.0))

    def _resize(self, size: float) -> None:
        self._size = min(float(self._maximum), max(float(self._minimum), size))
        self.limit = int(self._size)

    def _too_slow(self, threshold_s: float) -> bool:
        count = self._good + self._good_before
        if count < max(_MIN_SAMPLES, self.limit):
            return False
        return self._latency + self._latency_before > threshold_s * count

    # -- the window: the current half and the one before -------------------------------------------------------------

    def _turn(self, now: float) -> None:
        if now < self._half_ends + 0.5 * self.window_s:
            self._good_before, self._bad_before, self._latency_before = self._good, self._bad, self._latency
        else:
            self._good_before, self._bad_before, self._latency_before = 0, 0, 0.0
        self._good, self._bad, self._latency = 0, 0, 0.0
        self._half_ends = now + 0.5 * self.window_s

    def snapshot(self) -> dict[str, Any]:
        """The state for people and dashboards."""
        good, bad = self._good + self._good_before, self._bad + self._bad_before
        return {
            "limit": self.limit,
            "minimum": self._minimum,
            "maximum": self._maximum,
            "rate": self._pacer.pace,
            "slow_start": self._slow_start,
            "refused_share": round(self._refused, 4),
            "error_share": bad / (good + bad) if good + bad else 0.0,
            "latency_s": (self._latency + self._latency_before) / good if good else None,
        }
