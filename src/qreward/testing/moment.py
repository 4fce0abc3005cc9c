"""A clock that stands still until it is moved."""

from __future__ import annotations


class Now:
    """Monotonic seconds in `s`; hand it to `qreward.runtime.clock.install`, or to whatever takes a clock."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s
