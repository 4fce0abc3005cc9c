"""`CircuitBreaker` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.breaker import CircuitBreaker, CircuitState

__all__ = ["CircuitBreaker", "CircuitState"]
