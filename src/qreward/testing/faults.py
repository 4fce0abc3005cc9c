"""What can go wrong at a judge: a fault model that may change at any moment, and scripts for exact tests."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Dead = Literal["no", "reset", "hang", "503", "500"]


@dataclass
class Faults:
    """Everything is off by default. Times are seconds, rates are requests per second, probabilities per request.

    latency_s, sigma: median and log-sigma of the time an answer takes. stall_prob, stall_s: requests that take longer.
    rate, burst: a token bucket that answers 429; retry_after says how (``exact``, ``ceil`` to whole seconds,
    ``fixed:<s>``, ``none``); charge_rejected: a refused request costs a token as well. key_rates: a bucket per API key.
    tokens_per_min: 429 when the usage of a minute exceeds it. capacity: requests at once, above it 503.
    p500, p400, p_reset, p_malformed: random failures. p_truncated: streams that end in the middle.
    dead: the endpoint answers nothing useful. sse_tokens, sse_gap_s: pieces of a stream and the pause between them.
    embeddings_field: ``embeddings`` gives the alternative shape of an embeddings answer.
    """

    latency_s: float = 0.0
    sigma: float = 0.0
    stall_prob: float = 0.0
    stall_s: float = 3.0
    rate: float = 0.0
    burst: float = 0.0
    retry_after: str = "exact"
    charge_rejected: bool = False
    key_rates: dict[str, float] = field(default_factory=dict)
    tokens_per_min: int = 0
    capacity: int = 0
    p500: float = 0.0
    p400: float = 0.0
    p_reset: float = 0.0
    p_malformed: float = 0.0
    p_truncated: float = 0.0
    dead: Dead = "no"
    sse_tokens: int = 8
    sse_gap_s: float = 0.0
    dims: int = 64
    embeddings_field: Literal["data", "embeddings"] = "data"

    def set(self, **changes: Any) -> None:
        """Change fields; TypeError names one that does not exist."""
        known = {f.name for f in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise TypeError(f"no fault {name!r}; there are {', '.join(sorted(known))}")
            setattr(self, name, value)

    def service_time(self, dice: random.Random) -> tuple[float, bool]:
        """(seconds, whether it is a stall) for one answer."""
        seconds = self.latency_s * math.exp(dice.gauss(0.0, self.sigma)) if self.latency_s > 0 else 0.0
        stalled = bool(self.stall_prob) and dice.random() < self.stall_prob
        return seconds + (self.stall_s if stalled else 0.0), stalled

    def retry_headers(self, wait_s: float) -> dict[str, str]:
        """The headers of a 429 that would be admitted in *wait_s* seconds."""
        if self.retry_after == "none":
            return {}
        if self.retry_after == "ceil":
            return {"Retry-After": str(max(1, math.ceil(wait_s)))}
        if self.retry_after.startswith("fixed:"):
            return {"Retry-After": self.retry_after.removeprefix("fixed:")}
        return {"Retry-After": f"{wait_s:.3f}", "Retry-After-Ms": f"{wait_s * 1000:.0f}"}


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


@dataclass(frozen=True)
class Reply:
    """Answer with *status*; *retry_after* seconds go into the header, *body* replaces the error object."""

    status: int
    retry_after: float | str | None = None
    body: bytes | None = None


@dataclass(frozen=True)
class Delay:
    """Answer properly after *seconds*."""

    seconds: float


Step = Reply | Delay | Literal["ok", "reset", "hang", "malformed", "truncated"]
"""One line of a script: what the next request gets."""


def step(value: Step | int) -> Step:
    """A bare status code is a `Reply`."""
    return Reply(value) if isinstance(value, int) else value
