"""What a gate enforces, as frozen values; everything is off unless asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BreakerSpec:
    """Open after *threshold* failures in a row or a share of *failure_rate* in *window_s*; probe after *recovery_s*."""

    threshold: int
    recovery_s: float = 30.0
    failure_rate: float = 0.5
    window_s: float = 30.0


@dataclass(frozen=True, slots=True)
class AdaptiveSpec:
    """Bounds of the adaptive limit; see `qreward.policy.adaptive`.

    With *drives_rate* the number of starts in a rate window follows the limit as well.
    """

    initial: int
    minimum: int
    maximum: int
    error_threshold: float = 0.3
    latency_threshold_s: float | None = None
    window_s: float = 10.0
    drives_rate: bool = False


@dataclass(frozen=True, slots=True)
class GateSpec:
    """The limits of one key.

    rate_size, rate_window_s: starts in any window. concurrency: attempts at once. hedge_ratio: duplicates as a share
    of recent calls, with *hedge_burst* to begin with. retry_ratio: retries as a share of calls, plus
    *retry_floor_per_s*, plus *retry_burst* to begin with.
    """

    rate_size: float | None = None
    rate_window_s: float = 1.0
    concurrency: int | None = None
    adaptive: AdaptiveSpec | None = None
    breaker: BreakerSpec | None = None
    hedge_ratio: float | None = None
    hedge_burst: float = 2.0
    retry_ratio: float | None = None
    retry_floor_per_s: float = 10.0
    retry_burst: float = 10.0

    def merged(self, later: GateSpec) -> GateSpec:
        """Both at once: a feature that is on in either is on; where both set it, *later* decides."""
        rate = later if later.rate_size is not None else self
        hedge = later if later.hedge_ratio is not None else self
        retry = later if later.retry_ratio is not None else self
        return GateSpec(
            rate_size=rate.rate_size,
            rate_window_s=rate.rate_window_s,
            concurrency=self.concurrency if later.concurrency is None else later.concurrency,
            adaptive=later.adaptive or self.adaptive,
            breaker=later.breaker or self.breaker,
            hedge_ratio=hedge.hedge_ratio,
            hedge_burst=hedge.hedge_burst,
            retry_ratio=retry.retry_ratio,
            retry_floor_per_s=retry.retry_floor_per_s,
            retry_burst=retry.retry_burst,
        )
