"""`CircuitBreaker`: the breaker of `qreward.policy.breaker` with a clock and a lock, for code that asks it itself."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from enum import Enum

from qreward.policy.breaker import Breaker

log = logging.getLogger("qreward.utils.scheduler.circuit_breaker")


class CircuitState(Enum):
    """Closed lets everything through, open nothing, half open the probes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Opens after *failure_threshold* failures in a row; half open after *recovery_timeout* seconds.

    Half open, *half_open_max_calls* probes may go: the first success closes it, a failure opens it again. Results
    recorded while it is open belong to calls from before and change nothing. *time_func* returns seconds. Thread-safe.
    """

    def __init__(
        self,
        failure_threshold: int = 5,
        recovery_timeout: float = 30.0,
        half_open_max_calls: int = 1,
        time_func: Callable[[], float] | None = None,
    ) -> None:
        self._time_func = time_func or time.monotonic
        self._lock = threading.Lock()
        # A share of 1.0 leaves the decision to failures in a row.
        self._breaker = Breaker(
            failure_threshold, recovery_timeout, failure_rate=1.0, half_open_max=half_open_max_calls
        )
        self._state = CircuitState.CLOSED
        self._generation: int | None = None  # under which the calls of this state were admitted

    @property
    def state(self) -> CircuitState:
        """The state now; open becomes half open by itself."""
        with self._lock:
            return self._refresh(self._time_func())

    def allow_request(self) -> bool:
        """Whether a call may go now. Half open, each True takes the place of a probe until its result is recorded."""
        with self._lock:
            now = self._time_func()
            self._refresh(now)
            generation = self._breaker.admit(now)
            if generation is None:
                return False
            self._generation = generation
            return True

    def record_success(self) -> None:
        """A call answered."""
        self._record(self._breaker.success)

    def record_failure(self) -> None:
        """A call failed."""
        self._record(self._breaker.failure)

    def record_cancelled(self) -> None:
        """A call was cancelled and says nothing; the place of a probe becomes free."""
        with self._lock:
            if self._generation is not None:
                self._breaker.abandon(self._time_func(), self._generation)

    def reset(self) -> None:
        """Closed, as new."""
        with self._lock:
            now = self._time_func()
            self._breaker.reset(now)
            self._refresh(now)

    def _record(self, settle: Callable[[float, int], None]) -> None:
        with self._lock:
            now = self._time_func()
            self._refresh(now)
            if self._generation is None:  # recorded without having asked
                self._generation = self._breaker.admit(now)
            if self._generation is not None:
                settle(now, self._generation)
                self._refresh(now)

    def _refresh(self, now: float) -> CircuitState:
        state = CircuitState(self._breaker.state(now))
        if state is not self._state:
            log.info("circuit breaker: %s -> %s", self._state.name, state.name)
            self._state, self._generation = state, None
        return state
