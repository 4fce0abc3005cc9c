"""When a failed request is sent again, and after how long: qreward's policies with the SDK's bounds."""

from __future__ import annotations

from datetime import datetime

from qreward.policy.backoff import Backoff
from qreward.policy.signals import parse_retry_after

# 408 and 429 are the 4xx that a second try can cure.
RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504})
MAX_BACKOFF_S = 30.0
# A server that asks for more would stall a training step for longer than its own deadline.
MAX_RETRY_AFTER_S = 300.0


def backoff(attempt: int, first_s: float, roll: float) -> float:
    """Seconds before retry *attempt* (1, 2, …): full jitter, *roll* in [0, 1) of a doubling bound."""
    return Backoff(first_s, max_s=max(MAX_BACKOFF_S, first_s)).wait(attempt, roll, load=1.0)


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header (a number or an HTTP date) asks for; None if it says nothing."""
    seconds = None if value is None else parse_retry_after(value, now.timestamp())
    return None if seconds is None else min(seconds, MAX_RETRY_AFTER_S)
