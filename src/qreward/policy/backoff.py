"""How long to wait before the next attempt: exponential, fully jittered, shorter while there is room."""

from __future__ import annotations

from dataclasses import dataclass

_FLOOR_S = 0.001
_LONGEST_RETRY_AFTER_S = 300.0
_SPREAD = 0.1  # of Retry-After, so that callers do not come back in step


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits up to base_s × factor^(failures − 1), at most max_s; up to *speed_up* times shorter on an idle key."""

    base_s: float
    max_s: float = 30.0
    factor: float = 2.0
    speed_up: float = 5.0

    def wait(self, failures: int, roll: float, load: float, retry_after_s: float | None = None) -> float:
        """Seconds before attempt *failures* + 1. *roll* is uniform in [0, 1), *load* in [0, 1].

        Retry-After wins: at least *retry_after_s*, believed up to 300 s, plus up to a tenth of it (at most 1 s).
        Without it at least a millisecond, unless base_s is 0.
        """
        if retry_after_s is not None:
            asked = min(retry_after_s, _LONGEST_RETRY_AFTER_S)
            return max(_FLOOR_S, asked + roll * min(1.0, _SPREAD * asked))
        if self.base_s <= 0.0:
            return 0.0
        ceiling = self._ceiling(failures)
        hurry = 1.0 + (max(1.0, self.speed_up) - 1.0) * (1.0 - min(1.0, max(0.0, load)))
        return max(min(_FLOOR_S, ceiling), roll * ceiling / hurry)

    def _ceiling(self, failures: int) -> float:
        try:
            return min(self.max_s, self.base_s * float(self.factor) ** max(0, failures - 1))
        except OverflowError:
            return self.max_s
