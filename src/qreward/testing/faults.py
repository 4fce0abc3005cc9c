"""What can go wrong at a judge: a fault model that may change at any moment, and scripts for exact tests."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

Dead = Literal["no", "reset", "hang", "503", "500"]
EmbeddingsField = Literal["data", "embeddings"]
_WORDS = {"dead": get_args(Dead), "embeddings_field": get_args(EmbeddingsField)}
_RETRY_AFTER = re.compile(r"exact|ceil|none|fixed:\d+(\.\d+)?")
_SHARES = ("p500", "p400", "p_reset")
_PROBABILITIES = (*_SHARES, "p_malformed", "p_truncated", "stall_prob")


@dataclass
class Faults:
    """Everything is off by default. Times are seconds, rates are requests per second, probabilities per request.

    latency_s, sigma: median and log-sigma of the time an answer takes. stall_prob, stall_s: requests that take longer.
    rate, burst: a token bucket that answers 429; retry_after says how (``exact``, ``ceil`` to whole seconds,
    ``fixed:<s>``, ``none``); charge_rejected: a refused request costs a token as well. key_rates: a bucket per API key.
    tokens_per_min: 429 when the usage of a minute reaches it. capacity: requests at once, above it 503.
    p500, p400, p_reset, p_malformed: random failures. p_truncated: answers and streams that end in the middle.
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
    embeddings_field: EmbeddingsField = "data"

    def set(self, **changes: Any) -> None:
        """Change fields, all or none; TypeError names one that does not exist, ValueError a value that cannot be."""
        known = {f.name for f in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise TypeError(f"no fault {name!r}; there are {', '.join(sorted(known))}")
            _check(name, value)
        shares = {name: changes.get(name, getattr(self, name)) for name in _SHARES}
        if sum(shares.values()) > 1.0:
            raise ValueError(
                f"{' + '.join(_SHARES)} must be at most 1, not {sum(shares.values()):g}; lower one of them"
            )
        for name, value in changes.items():
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


def _check(name: str, value: Any) -> None:
    """ValueError when *value* is none for the fault *name*."""
    default = getattr(Faults, name, {})
    if name in _WORDS:
        good, wanted = value in _WORDS[name], f"one of {', '.join(_WORDS[name])}"
    elif name == "retry_after":
        good, wanted = bool(_RETRY_AFTER.fullmatch(str(value))), "exact, ceil, none or fixed:<seconds>"
    elif name == "key_rates":
        good = isinstance(value, dict) and all(_is_number(rate, float) for rate in value.values())
        wanted = "requests per second by API key"
    elif isinstance(default, bool):
        good, wanted = isinstance(value, bool), "true or false"
    elif name in _PROBABILITIES:
        good, wanted = _is_number(value, float) and value <= 1, "a probability from 0 to 1"
    else:
        good, wanted = _is_number(value, type(default)), f"{type(default).__name__}, 0 or more"
    if not good:
        raise ValueError(f"{name} must be {wanted}, not {value!r}")


def _is_number(value: Any, kind: type) -> bool:
    kinds = (int,) if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and 0 <= value < math.inf


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


Word = Literal["ok", "reset", "hang", "malformed", "truncated"]
Step = Reply | Delay | Word
"""One line of a script: what the next request gets."""


def step(value: Step | int) -> Step:
    """A bare status code is a `Reply`; ValueError for what is no step."""
    if isinstance(value, int) and 200 <= value <= 599:
        return Reply(value)
    if isinstance(value, Reply | Delay) or value in get_args(Word):
        return value  # type: ignore[return-value]
    raise ValueError(f"no step {value!r}; there are a status, Reply, Delay, {', '.join(get_args(Word))}")
