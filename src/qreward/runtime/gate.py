"""The door that the calls of one key share: who may go in, in which order, and who is woken next.

A gate belongs to no event loop: any thread and any loop may use it at once. The lock is held for microseconds and
never across an await. A waiting call is a future on its own loop; the timer that wakes the head of the queue runs
on the head's loop, so a gate needs no thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

from qreward.errors import CircuitOpenError
from qreward.policy.classify import Verdict
from qreward.policy.hedge import HedgePolicy
from qreward.policy.priority import Entry, WaitQueue
from qreward.runtime import clock
from qreward.runtime.fork import renew_after_fork
from qreward.runtime.limits import NEVER, Limits, Permit
from qreward.runtime.spec import GateSpec
from qreward.runtime.wake import Alarm, call_on


@dataclass(slots=True, eq=False)
class _Waiter:
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Permit]


_WHILE_PROBING_S = 0.5

# A waiter and its permit; None = the breaker refuses.
_Grants = list[tuple[_Waiter, Permit | None]]


class Gate:
    """Thread-safe and loop-agnostic; its spec may change while calls wait and run."""

    def __init__(self, key: str, spec: GateSpec | None = None, base: str = "") -> None:
        self.key = key
        self.base = base  # what the registry configures it by
        self.used = clock.monotonic()
        self._limits = Limits(spec or GateSpec())
        self._reset_waiting()
        renew_after_fork(self)

    def _reset_waiting(self) -> None:
        self._lock = threading.Lock()
        self._queue: WaitQueue[_Waiter] = WaitQueue()
        self._alarm = Alarm(self._ring)

    def after_fork(self) -> None:
        """In a forked child: calls in flight and waiting are the parent's; what was learned stays."""
        self._reset_waiting()
        self._limits.inflight = 0

    @property
    def spec(self) -> GateSpec:
        return self._limits.spec

    def configure(self, spec: GateSpec) -> None:
        """Apply *spec* at once, atomically; calls that wait are looked at again. What was learned stays."""
        with self._lock:
            self._limits.apply(spec)
            grants = self._pump(clock.monotonic())
        self._deliver(grants)

    # -- entering --------------------------------------------------------------------------------------------------

    def try_enter(self, first: bool = False) -> Permit | None:
        """A permit when an attempt may start at this moment, else None; raises CircuitOpenError.

        *first* marks the first attempt of a call, from which the budgets for retries and hedges grow.
        """
        limits = self._limits
        with self._lock:
            self.used = now = clock.monotonic()
            if first:
                limits.count(now)
            if len(self._queue) or limits.blocked(now) > 0.0:
                self._refuse_when_open(now)
                return None
            permit = limits.grant(now)
        if permit is None:
            raise self._open_error(now)
        return permit

    async def enter(self, priority: int = 5) -> Permit:
        """Wait for the turn of a call of *priority* (0 first, 9 last; FIFO inside) and return its permit.

        Raises CircuitOpenError at once, or when the breaker opens while the call waits.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            now = clock.monotonic()
            self._refuse_when_open(now)
            entry = self._queue.put(waiter, priority, now)
            grants = self._pump(now)
        self._deliver(grants)
        try:
            permit = await waiter.future
        except asyncio.CancelledError:
            self._leave_queue(waiter, entry)
            raise
        permit.started = clock.monotonic()
        return permit

    def _leave_queue(self, waiter: _Waiter, entry: Entry[_Waiter]) -> None:
        future = waiter.future
        if future.done() and not future.cancelled() and future.exception() is None:
            self.abandoned(future.result())
            return
        with self._lock:
            self._queue.remove(entry)
            grants = self._pump(clock.monotonic())
        self._deliver(grants)

    def _refuse_when_open(self, now: float) -> None:
        if self._limits.open_for(now) > 0.0:
            raise self._open_error(now)

    def _open_error(self, now: float) -> CircuitOpenError:
        # While a probe runs nobody knows how long it takes; a caller that waits for 0 s would spin.
        return CircuitOpenError(self.key, self._limits.open_for(now) or _WHILE_PROBING_S)

    def try_hedge(self) -> Permit | None:
        """A permit for a duplicate: only within the budget, while nobody waits and the breaker is closed."""
        with self._lock:
            now = clock.monotonic()
            if len(self._queue) or not self._limits.may_hedge(now):
                return None
            return self._limits.grant(now)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def succeeded(self, permit: Permit) -> None:
        """The attempt answered; its latency counts from `permit.started`."""
        with self._lock:
            self.used = now = clock.monotonic()
            waiting = len(self._queue)
            self._limits.succeeded(now, permit, waiting)
            grants = self._pump(now) if waiting else None
        if grants:
            self._deliver(grants)

    def failed(self, permit: Permit, exc: BaseException, verdict: Verdict) -> None:
        """The attempt raised *exc*, judged by `classify`."""
        with self._lock:
            self.used = now = clock.monotonic()
            self._limits.failed(now, permit, exc, verdict)
            grants = self._pump(now)
        self._deliver(grants)

    def abandoned(self, permit: Permit) -> None:
        """The attempt was cancelled or lost a race: it measured nothing."""
        with self._lock:
            self.used = now = clock.monotonic()
            self._limits.abandoned(now, permit)
            grants = self._pump(now)
        self._deliver(grants)

    # -- waking ----------------------------------------------------------------------------------------------------

    def _pump(self, now: float) -> _Grants:
        """Grant permits to the head of the queue while the limits allow it; arm a timer where time will."""
        grants: _Grants = []
        while len(self._queue):
            wait = self._limits.blocked(now)
            if wait > 0.0:
                head = self._queue.peek(now)
                if wait < NEVER and head is not None and not self._alarm.set(head.loop, wait):
                    self._queue.pop(now)  # its loop is closed: nobody waits there any more
                    continue
                break
            waiter = self._queue.pop(now)
            if waiter is not None:
                grants.append((waiter, self._limits.grant(now)))
        return grants

    def _ring(self) -> None:
        with self._lock:
            grants = self._pump(clock.monotonic())
        self._deliver(grants)

    def _deliver(self, grants: _Grants) -> None:
        for waiter, permit in grants:
            if not call_on(waiter.loop, self._hand_over, waiter, permit) and permit is not None:
                self.abandoned(permit)  # its loop is closed

    def _hand_over(self, waiter: _Waiter, permit: Permit | None) -> None:
        if waiter.future.done():
            if permit is not None:
                self.abandoned(permit)
        elif permit is None:
            waiter.future.set_exception(self._open_error(clock.monotonic()))
        else:
            waiter.future.set_result(permit)

    # -- state -----------------------------------------------------------------------------------------------------

    def retry_wait(self, patience_s: float) -> float:
        """Take a retry from the budget; the seconds to wait before it may go, infinity (and nothing taken) when more
        than *patience_s*.
        """
        with self._lock:
            return self._limits.retry_wait(clock.monotonic(), patience_s)

    def hedge_delay(self, policy: HedgePolicy) -> float | None:
        """Seconds after which a duplicate of an unanswered attempt may go; None = not yet known."""
        with self._lock:
            return policy.delay(self._limits.latencies)

    def quantile(self, q: float) -> float | None:
        """A quantile of the recent latencies of answered attempts, in seconds; None while too few are known."""
        with self._lock:
            return self._limits.latencies.quantile(q)

    @property
    def mean_s(self) -> float | None:
        """The moving mean of the latencies, in seconds; None before the first answer."""
        return self._limits.latencies.mean_s

    def load(self) -> float:
        """How busy the key is, 0.0 (idle, healthy) to 1.0 (full, failing, or told off a moment ago)."""
        return 1.0 if len(self._queue) else self._limits.load(clock.monotonic())

    @property
    def inflight(self) -> int:
        """Attempts that hold a permit."""
        return self._limits.inflight

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @property
    def limit(self) -> float:
        """Attempts allowed at once now; infinity where nothing limits them."""
        return self._limits.limit

    def forgettable(self, now: float, idle_s: float) -> bool:
        """Whether nothing was done for *idle_s* and nothing of the past would limit the next call."""
        if self._limits.inflight or len(self._queue):
            return False
        return now - self.used > max(idle_s, self._limits.memory_s)

    def snapshot(self) -> dict[str, Any]:
        """The state for people and dashboards."""
        with self._lock:
            return {"key": self.key, "waiting": len(self._queue), **self._limits.snapshot(clock.monotonic())}
