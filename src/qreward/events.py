"""What happens during a call, as plain records, and the interface of those who want to watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

Outcome = Literal["ok", "error", "default", "cancelled", "rejected"]


@dataclass(slots=True, eq=False)
class Attempt:
    """One try of a call. Times are monotonic seconds; `context` belongs to the observer."""

    number: int
    hedge: bool
    started: float
    ended: float | None = None
    error: BaseException | None = None
    context: Any = None


@dataclass(slots=True, eq=False)
class Call:
    """One call from the caller's point of view. Times are monotonic seconds; `context` belongs to the observer.

    `wait_s` is the time spent in the queue, under limits and in backoff. `outcome` is ``rejected`` when the
    circuit breaker refused the call before any attempt.
    """

    key: str
    name: str
    priority: int
    started: float
    attempts: int = 0
    retries: int = 0
    hedges: int = 0
    wait_s: float = 0.0
    ended: float | None = None
    outcome: Outcome | None = None
    error: BaseException | None = None
    context: Any = None

    @property
    def latency_s(self) -> float:
        """Seconds from the start to the end; 0.0 while the call runs."""
        return 0.0 if self.ended is None else self.ended - self.started


class Observer(Protocol):
    """Told of every step. Methods must be quick and must not raise; one that raises is logged and goes on."""

    def call_started(self, call: Call) -> None: ...

    def attempt_started(self, call: Call, attempt: Attempt) -> None: ...

    def attempt_ended(self, call: Call, attempt: Attempt) -> None: ...

    def call_ended(self, call: Call) -> None: ...
