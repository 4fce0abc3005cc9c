"""Whether a failed attempt is repeated, and when."""

from __future__ import annotations

from dataclasses import dataclass

from qreward.policy.backoff import Backoff
from qreward.policy.classify import Kind, Verdict


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most *max_retries* attempts after the first, for instances of *exception_types*."""

    max_retries: int
    backoff: Backoff
    exception_types: tuple[type[BaseException], ...] = (BaseException,)

    def decide(
        self,
        exc: BaseException,
        verdict: Verdict,
        failures: int,
        roll: float,
        load: float,
        idempotent: bool = True,
    ) -> float | None:
        """Seconds to wait before the next attempt, or None to give up.

        *failures* counts the failed attempts so far, at least 1. A client's error (4xx) is always final; a programming
        error is, unless its class or a base other than Exception and BaseException is among the types.
        """
        if failures > self.max_retries or not isinstance(exc, self.exception_types):
            return None
        if not verdict.retryable and not (verdict.kind is Kind.BUG and self._names(exc)):
            return None
        if not idempotent and not verdict.unsent:
            return None
        return self.backoff.wait(failures, roll, load, verdict.retry_after_s)

    def _names(self, exc: BaseException) -> bool:
        return any(isinstance(exc, t) for t in self.exception_types if t not in (Exception, BaseException))
