"""`ExecutionContext` under the import path of QReward 0.1.7; re-exports only."""

from qreward.legacy.context import ExecutionContext

__all__ = ["ExecutionContext"]
