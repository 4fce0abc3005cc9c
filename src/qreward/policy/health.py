"""Whether an endpoint is in service: taken out when it fails or hangs, asked again with one call at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Literal

State = Literal["healthy", "ejected", "probing"]

_IN_A_ROW = 3
_RECENT = 20
_FEWEST = 10
_SHARE = 0.5


_SHORTEST_HANG_S, _TIMES_P95 = 1.0, 10.0
_SHORTEST_UNKNOWN_HANG_S, _TIMES_MEAN = 5.0, 20.0  # while too few answers are known for a p95


def hang_patience(latencies: Iterable[tuple[float | None, float | None]]) -> float | None:
    """Seconds without an answer after which one of several endpoints hangs; None before any of them has answered.

    *latencies*: (p95, mean) of each, None where not known.
    """
    pairs = list(latencies)
    known = [p95 for p95, _ in pairs if p95 is not None]
    if known:
        return max(_SHORTEST_HANG_S, _TIMES_P95 * max(known))
    means = [mean for _, mean in pairs if mean is not None]
    return max(_SHORTEST_UNKNOWN_HANG_S, _TIMES_MEAN * max(means)) if means else None


class Health:
    """One endpoint.

    It is ejected by a connection that was refused, by three failures in a row, by half of its recent results being
    failures, or by `hang`. After *base_s* seconds one call may probe it; each failed probe doubles the pause up to
    *max_s*. A success brings it back.
    """

    def __init__(self, base_s: float = 1.0, max_s: float = 30.0) -> None:
        self.base_s = base_s
        self.max_s = max_s
        self._until: float | None = None  # None = healthy
        self._pause = base_s
        self._probe_since: float | None = None
        self._in_a_row = 0
        self._results: deque[bool] = deque(maxlen=_RECENT)

    def state(self, now: float) -> State:
        """`probing`: the pause is over; one call may try."""
        if self._until is None:
            return "healthy"
        return "ejected" if now < self._until else "probing"

    def returns_in(self, now: float) -> float:
        """Seconds until a probe is allowed; 0.0 when it is or none is needed."""
        return 0.0 if self._until is None else max(0.0, self._until - now)

    def may_try(self, now: float) -> bool:
        """Whether a call may go there: it is healthy, or the probe's slot is free."""
        state = self.state(now)
        if state == "healthy":
            return True
        return state == "probing" and (self._probe_since is None or now - self._probe_since >= self.max_s)

    def admits(self, now: float) -> bool:
        """As `may_try`, and takes the probe's slot where one is needed."""
        if not self.may_try(now):
            return False
        if self._until is not None:
            self._probe_since = now
        return True

    def answered(self, now: float) -> None:
        """A call was answered, if only by an error that a working server gives."""
        self._until, self._probe_since, self._pause = None, None, self.base_s
        self._in_a_row = 0
        self._results.append(True)

    def failed(self, now: float, refused: bool = False, began: float | None = None) -> bool:
        """A call failed; *refused*: nobody listens there. True when this ejects the endpoint.

        *began*: when the call started, which tells the probe from calls that were under way before; None = the probe.
        """
        if self._until is not None:
            if self._probed(began):  # calls that were under way when it was ejected prove nothing new
                self._eject(now)
            return False
        self._in_a_row += 1
        self._results.append(False)
        share = self._results.count(False) / len(self._results)
        if refused or self._in_a_row >= _IN_A_ROW or (len(self._results) >= _FEWEST and share >= _SHARE):
            self._eject(now)
            return True
        return False

    def hang(self, now: float) -> None:
        """Nothing is answered any more."""
        self._eject(now)

    def released(self, began: float | None = None) -> None:
        """A call was cancelled: had it been the probe, another may try. *began* as in `failed`."""
        if self._probed(began):
            self._probe_since = None

    def _probed(self, began: float | None) -> bool:
        return self._probe_since is not None and (began is None or began >= self._probe_since)

    def _eject(self, now: float) -> None:
        self._until = now + self._pause
        self._pause = min(self.max_s, 2.0 * self._pause)
        self._probe_since = None
        self._in_a_row = 0
        self._results.clear()
