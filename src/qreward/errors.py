"""Every exception that qreward itself raises; what a function or server raised travels unchanged.

QRewardError
├── CircuitOpenError    the breaker of a key refuses the call (also a RuntimeError)
├── NoHealthySource     no endpoint is left to try (also a RuntimeError)
├── DeadlineExceeded    the deadline passed before a source could answer (also a TimeoutError)
├── BatchError          some entries of a batch failed; the others are in `results`
└── ConfigError         a configuration that cannot work (also a ValueError)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class QRewardError(Exception):
    """Base of the exceptions that qreward raises on its own account."""


class CircuitOpenError(QRewardError, RuntimeError):
    """The circuit breaker of *key* is open; the next probe is allowed in `retry_after` seconds."""

    def __init__(self, key: str, retry_after: float) -> None:
        super().__init__(f"Circuit breaker is open for {key}; the next probe is allowed in {retry_after:.1f} s")
        self.key = key
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.key, self.retry_after)


class NoHealthySource(QRewardError, RuntimeError):
    """Every endpoint that could take the call is out of service."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(f"No healthy proxy available.{' ' + detail if detail else ''}")
        self.detail = detail

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.detail,)


class DeadlineExceeded(QRewardError, TimeoutError):
    """The deadline of a call passed; the message says what it was waiting for."""


class BatchError(QRewardError):
    """At least one entry of a batch failed. `results` is in input order; failed entries are exceptions."""

    def __init__(self, results: Sequence[Any]) -> None:
        failed = [(i, r) for i, r in enumerate(results) if isinstance(r, BaseException)]
        first = f"; the first, entry {failed[0][0]}: {type(failed[0][1]).__name__}: {failed[0][1]}" if failed else ""
        super().__init__(f"{len(failed)} of {len(results)} entries failed{first}")
        self.results = list(results)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.results,)


class ConfigError(QRewardError, ValueError):
    """A configuration that cannot work; the message names the field, the value and what is allowed."""
