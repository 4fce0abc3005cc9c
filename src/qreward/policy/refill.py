"""How fast a server's token bucket refills, estimated from the calls that it refused.

At a refusal the bucket is empty. Between two refusals it gave out as many tokens as calls were admitted, so
``admitted / time`` is its refill rate, within one token at either end; an exact ``Retry-After`` says when the next
token comes and removes most of that doubt. Each refusal is an anchor. The estimate is taken over the longest run of
latest anchors that one rate can explain, so a rate that changed is noticed when new anchors contradict the old ones.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

_ANCHORS = 12
_DOUBT, _DOUBT_EXACT = 1.5, 0.7  # tokens that two anchors may be off by
_SLACK = 1.03  # for tokens lost to a bucket that overflows now and then
_SPAN_MIN_S = 1e-3


@dataclass(slots=True)
class Anchor:
    """The state of affairs at a refusal; all but the first and the last are totals since the beginning."""

    at: float  # the moment of the next token, as far as it is known
    admitted: int
    refused: int
    idle_s: float  # in which fewer calls came than were allowed
    paused_s: float  # in which the server wanted no calls
    wait_s: float | None  # until the next token, by the server's own exact word


@dataclass(slots=True)
class Estimate:
    """`rate` in tokens per second, within `low` and `high`, resting on `support` admitted calls."""

    rate: float = 0.0
    support: int = 0
    low: float = 0.0
    high: float = float("inf")


class RefillEstimator:
    """Takes the anchors of one bucket, gives the estimate."""

    __slots__ = ("_anchors", "_guess", "charge")

    def __init__(self) -> None:
        self._anchors: deque[Anchor] = deque(maxlen=_ANCHORS)
        self._guess = 1.0
        self.charge: float | None = None
        """Tokens that a refused call costs: 0.0, 1.0, or None while no exact Retry-After has told."""

    def add(self, new: Anchor, early: bool, jitter_s: float) -> Estimate:
        """The estimate with *new* as the latest anchor.

        *early*: the refusal contradicts the last estimate. *jitter_s*: how much the time from a start to its refusal
        varies.
        """
        if early and self.charge is None:
            self._guess *= 0.5  # then refused calls cost less than thought
        found = self._longest_run(new, jitter_s)
        if new.wait_s is not None and self.charge is None:
            if new.wait_s * found.low > 1.1:  # more than one token is missing
                self.charge = 1.0
            elif new.wait_s * found.high < 1.0:
                self.charge = 0.0
        self._anchors.append(new)
        return found

    def refused_before_latest(self) -> None:
        """A call counted as admitted before the latest anchor turns out to be refused."""
        if self._anchors:
            self._anchors[-1].admitted -= 1

    def _longest_run(self, new: Anchor, jitter_s: float) -> Estimate:
        found = Estimate()
        least, guess, most = (0.0, self._guess, 1.0) if self.charge is None else (self.charge,) * 3
        for old in reversed(self._anchors):
            span_s, taken, refused = new.at - old.at, new.admitted - old.admitted, new.refused - old.refused
            if span_s <= 0.0 or taken < 0:
                continue
            exact = new.wait_s is not None
            doubt = _DOUBT_EXACT if exact and old.wait_s is not None else _DOUBT
            doubt += 2.0 * jitter_s * taken / span_s
            paused_s = 0.0 if exact else new.paused_s - old.paused_s
            low = (taken + least * refused - doubt) / span_s
            busy_s = max(span_s - (new.idle_s - old.idle_s) - paused_s, _SPAN_MIN_S)
            high = _SLACK * (taken + most * refused + doubt) / busy_s
            if low > found.high or high < found.low:
                break
            found.low, found.high = max(found.low, low), min(found.high, high)
            # The more calls follow a pause, the more of it went into a full bucket or a fresh quota.
            span_s = max(span_s - paused_s * (1.0 - 1.0 / max(taken, 1)), _SPAN_MIN_S)
            found.rate, found.support = (taken + guess * refused) / span_s, taken
        found.rate = max(found.rate, found.low)
        return found
