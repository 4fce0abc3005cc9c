"""A rate of starts, learned from refusals.

The first refusal halves the rate at which calls have been starting; from the second on, `refill` estimates the server's
rate. Starts are paced just below the estimate ("hold") for twice as many starts as support it: a crude estimate is
tried soon, a good one every two seconds. Then the pace grows by growing steps ("probe") until the next refusal. Only
starts that the pace held back count, so a pace that holds nobody back never grows, and is forgotten after a minute.

Tokens lost while the bucket was full make the estimate too low. The probe then goes far beyond it before the refusal
comes, and the next hold tries a pace in between ("test"). A test that is refused early confirms the estimate; one that
passes raises it.

A refusal takes a while to be heard. Starts in that time belong to the same episode, and tests and steps last longer
than it.
"""

from __future__ import annotations

import math
from collections import deque

from qreward.policy.refill import Anchor, Estimate, RefillEstimator

_INFINITE = float("inf")
_RECENT = 128  # start times kept, to find the place of a refusal among the starts
_CATCH_UP_S = 0.005  # a late timer may be made good by this much
_FORGET_S = 60.0
_HOLD_MIN, _HOLD_TEST, _HOLD_FULL = 4, 24, 60.0  # starts
_HOLD_S, _HOLD_S_MAX = 2.0, 60.0  # of a full hold
_STEP_MIN = 4  # starts between two steps of a probe
_GAIN_MIN, _GAIN_MAX, _GAIN_GROWTH = 0.005, 0.25, 1.5  # of the pace per step
_BEYOND = 1.15  # a probe this far above its hold is in the open and takes the largest steps
_OUTGROWN, _FAR_OUTGROWN = 1.2, 2.0  # pace at the refusal, in estimates, that calls for a test
_TEST_MAX = 1.5  # estimates
_CRUISE = 0.985  # pace of a hold, in estimates
_AFTER_PAUSE = 0.7
_WELL_KNOWN = 32  # admitted calls behind an estimate that is no longer crude
_LAG_WEIGHT = 0.1  # of one refusal in the averages


class LearnedRate:
    """`pace` is starts per second, or None while no limit is known; `next_at` is when the next start may go.

    Whoever delays a start because of `next_at` sets `held`.
    """

    __slots__ = (
        "_episode_at",
        "_episode_started",
        "_exact",
        "_gain",
        "_hold",
        "_hold_pace",
        "_hold_s",
        "_idle_s",
        "_interval",
        "_jitter_s",
        "_lag_s",
        "_minimum",
        "_next_step",
        "_paced",
        "_paused_s",
        "_recent",
        "_refill",
        "_refused",
        "_refused_together",
        "_starts",
        "_step",
        "_support",
        "_testing",
        "_too_fast",
        "held",
        "next_at",
        "pace",
    )

    def __init__(self, minimum: float) -> None:
        self.next_at = -_INFINITE
        self._minimum = minimum
        self._starts = self._refused = 0
        self._idle_s = self._paused_s = 0.0
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._episode_at = self._episode_started = -_INFINITE
        self._exact = False
        self._lag_s = self._jitter_s = 0.0  # of a refusal behind its start
        self._forget()

    def _forget(self) -> None:
        self.pace: float | None = None
        self.held = False
        self._refill = RefillEstimator()
        self._interval = self._hold_pace = 0.0
        self._support = self._paced = self._refused_together = 0
        self._hold = self._next_step = self._step = _HOLD_MIN
        self._hold_s = _HOLD_S
        self._gain = _GAIN_MAX
        self._testing, self._too_fast = False, _INFINITE

    # -- starts ----------------------------------------------------------------------------------------------------

    def started(self, now: float) -> None:
        """A call starts."""
        self._starts += 1
        self._recent.append(now)
        if self.pace is None:
            return
        late = now - self.next_at
        prompt = late <= _CATCH_UP_S
        self.next_at = (self.next_at if prompt else now - _CATCH_UP_S) + self._interval
        if prompt or self.held:
            self.held = False
            self._paced += 1
            if self._paced >= self._next_step:
                self._probe(now, self.pace)
        else:
            self._idle_s += late
            if now - self._episode_at > _FORGET_S:
                self._forget()

    def _probe(self, now: float, pace: float) -> None:
        self._next_step = self._paced + max(self._step, self._unheard(pace))
        if pace > 2.0 * self._recent_rate(now, 32, 1e-3):
            return  # something else is what holds the callers back
        in_the_open = self._set_pace(pace * (1.0 + self._gain)) >= _BEYOND * self._hold_pace
        self._gain = _GAIN_MAX if in_the_open else min(_GAIN_MAX, _GAIN_GROWTH * self._gain)

    def _set_pace(self, pace: float) -> float:
        self.pace = pace = max(self._minimum, pace)
        self._interval = 1.0 / pace
        return pace

    def _unheard(self, pace: float) -> int:
        """Starts that follow a refused one before the refusal is heard."""
        return int(self._lag_s * pace)

    def _recent_rate(self, now: float, count: int, span_min_s: float) -> float:
        recent = self._recent
        count = min(count, len(recent))
        return count / max(now - recent[-count], span_min_s) if count else 0.0

    def pause(self, now: float, wait_s: float) -> None:
        """No start for *wait_s*, because the server asked for it."""
        self._paused_s += max(0.0, now + wait_s - max(now, self.next_at))
        self.next_at = max(self.next_at, now + wait_s)
        # Each probe ends in such a pause: probe rarely enough that the pauses cost a tenth.
        self._hold_s = min(_HOLD_S_MAX, max(_HOLD_S, 10.0 * wait_s))
        if self.pace is not None and self._hold >= _HOLD_FULL:
            self._hold = self._next_step = int(max(_HOLD_FULL, self._hold_s * self.pace))

    # -- refusals --------------------------------------------------------------------------------------------------

    def refused(self, now: float, started_at: float, retry_after_s: float | None) -> None:
        """The server refused, for its rate, the call that started at *started_at*."""
        self._refused += 1
        self._learn_lag(now - started_at)
        if retry_after_s is not None and not retry_after_s.is_integer():
            self._exact = True  # whole seconds alone may be nothing but rounding
        new_episode = started_at > self._episode_at
        self._refused_together = 1 if new_episode else self._refused_together + 1
        wait = retry_after_s if self._exact else None
        if wait is not None and self._support >= _WELL_KNOWN:
            # A wait for many tokens does not describe the bucket: it is for the refused call, not for everybody.
            wait = wait if wait <= (3 + 2 * self._refused_together) * self._interval else None
        if new_episode:
            self._episode(now, started_at, wait)
        else:
            self.next_at += self._interval  # it may have cost a token as well
            if started_at <= self._episode_started:
                self._refill.refused_before_latest()
        if wait is not None:
            self.next_at = max(self.next_at, now + wait + self._interval)

    def _learn_lag(self, lag_s: float) -> None:
        if self._lag_s == 0.0:
            self._lag_s = lag_s
        self._jitter_s += _LAG_WEIGHT * (abs(lag_s - self._lag_s) - self._jitter_s)
        self._lag_s += _LAG_WEIGHT * (lag_s - self._lag_s)

    def _episode(self, now: float, started_at: float, wait: float | None) -> None:
        later = self._started_after(started_at)
        self._paced = max(0, self._paced - later)
        admitted = self._starts - later - self._refused
        anchor = Anchor(now + (wait or 0.0), admitted, self._refused, self._idle_s, self._paused_s, wait)
        found = self._refill.add(anchor, self._paced < self._hold, self._jitter_s)
        if self._testing and self.pace is not None:
            self._too_fast = self.pace if self._paced < self._hold else _INFINITE
        far = self.pace is not None and self.pace > _FAR_OUTGROWN * found.rate
        self._testing = False
        self._hold_pace = self._set_pace(self._decide(now, found, wait is not None))
        self._support = found.support
        self._plan_hold(far)
        self._episode_at, self._episode_started = now, started_at
        # Two tokens in hand absorb the jitter of arrivals.
        self.next_at = max(self.next_at, now + 2.0 * self._interval)

    def _plan_hold(self, far: bool) -> None:
        self._hold_s = max(_HOLD_S, 0.5 * self._hold_s)
        full = max(_HOLD_FULL, self._hold_s * self._hold_pace)
        unheard = self._unheard(self._hold_pace)
        usual = int(max(_HOLD_MIN + unheard, min(2.0 * self._support, full)))
        self._hold = _HOLD_TEST + 2 * unheard if self._testing else usual
        scale = self._hold if self._testing and far else usual
        self._gain = min(_GAIN_MAX, max(_GAIN_MIN, 0.5 / scale))
        self._step = max(_STEP_MIN, scale // 8)
        self._paced, self._next_step = 0, self._hold

    def _decide(self, now: float, found: Estimate, exact: bool) -> float:
        """The pace to hold after a refusal."""
        if self.pace is None:
            return 0.5 * self._recent_rate(now, _RECENT, 0.02)
        hold = _CRUISE * found.rate
        if found.support < (1 if exact else 3):
            return min(max(0.5 * self.pace, hold), found.high)
        if self._hold_s > _HOLD_S and not exact:
            # A refusal that costs everybody a pause is too dear a lesson.
            return max(found.low, min(hold, _AFTER_PAUSE * self.pace))
        beyond = self.pace if self.pace > _FAR_OUTGROWN * found.rate else min(self.pace, self._too_fast)
        if found.support < 2 * _HOLD_MIN or beyond <= _OUTGROWN * found.rate:
            return hold
        self._testing = True
        return found.rate * min(math.pow(beyond / found.rate, 0.4), _TEST_MAX)

    def _started_after(self, moment: float) -> int:
        later = 0
        for start in reversed(self._recent):
            if start <= moment:
                break
            later += 1
        return later
