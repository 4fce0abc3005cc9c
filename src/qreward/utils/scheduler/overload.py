"""`OverloadChecker` under the import path of QReward 0.1.7; re-exports only."""

from qreward.globals import (
    LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING,
    OVERLOAD_EXCEPTIONS,
    OVERLOAD_KEYWORDS,
    SYSTEM_OVERLOAD_INDICATORS,
)
from qreward.legacy.overload import MAX_EXCEPTION_CHAIN_DEPTH, OverloadChecker

__all__ = [
    "LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING",
    "MAX_EXCEPTION_CHAIN_DEPTH",
    "OVERLOAD_EXCEPTIONS",
    "OVERLOAD_KEYWORDS",
    "SYSTEM_OVERLOAD_INDICATORS",
    "OverloadChecker",
]
