"""`AdaptiveRateLimiter` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.adaptive import (
    DEFAULT_COOLDOWN_SECONDS,
    DEFAULT_SLOWDOWN_FACTOR,
    DEFAULT_SPEEDUP_FACTOR,
    AdaptiveRateLimiter,
)

__all__ = ["DEFAULT_COOLDOWN_SECONDS", "DEFAULT_SLOWDOWN_FACTOR", "DEFAULT_SPEEDUP_FACTOR", "AdaptiveRateLimiter"]
