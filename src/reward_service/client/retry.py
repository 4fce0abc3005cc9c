"""When a failed request is sent again, and after how long; pure: time and chance come in."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

# 408 and 429 are the 4xx that a second try can cure.
RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504})
MAX_BACKOFF_S = 30.0
# A server that asks for more would stall a training step for longer than its own deadline.
MAX_RETRY_AFTER_S = 300.0


def backoff(attempt: int, first_s: float, roll: float) -> float:
    """Seconds before retry *attempt* (1, 2, …): full jitter, *roll* in [0, 1) of a doubling bound."""
    bound = first_s * 2.0 ** min(attempt - 1, 60)
    return roll * min(bound, max(MAX_BACKOFF_S, first_s))


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds that a ``Retry-After`` header (a number or an HTTP date) asks for; None if it says nothing."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            when = parsedate_to_datetime(value)
        except ValueError:
            return None
        # A date with the zone -0000 is UTC too.
        when = when if when.tzinfo else when.replace(tzinfo=UTC)
        seconds = (when - now).total_seconds()
    if math.isnan(seconds):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_S)
