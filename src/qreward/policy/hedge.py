"""When a duplicate of an unanswered attempt is worth sending."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from qreward.policy.latency import LatencyWindow

_SHORTEST_S = 0.001
_QUANTILE = re.compile(r"p(\d+(?:\.\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """After *delay_s* seconds, or after the *quantile* of the observed latencies; at most *max_hedges* per call."""

    delay_s: float | None
    quantile: float | None
    max_hedges: int

    def delay(self, latencies: LatencyWindow) -> float | None:
        """Seconds until the next duplicate; None while the quantile is not known."""
        if self.quantile is None:
            return self.delay_s
        observed = latencies.quantile(self.quantile)
        return None if observed is None else max(_SHORTEST_S, observed)


def parse_hedge_time(value: float | str) -> tuple[float | None, float | None]:
    """(seconds, quantile) from a number of seconds or a string such as ``"p95"``; (None, None) = off.

    Raises ValueError that names the value.
    """
    if isinstance(value, str):
        match = _QUANTILE.fullmatch(value)
        percent = float(match[1]) if match else 0.0
        if not 0.0 < percent < 100.0:
            raise ValueError(f"{value!r} is neither seconds nor a quantile such as 'p95' (above p0, below p100)")
        return None, percent / 100.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is neither seconds >= 0 nor a quantile such as 'p95'")
    return (float(value), None) if value > 0 else (None, None)
