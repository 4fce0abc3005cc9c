"""Hedging: an attempt in the caller's task, duplicates beside it, the first answer wins.

The first attempt stays inline. A timer starts duplicates as tasks; when one of them answers first, the inline attempt
is interrupted the way `asyncio.timeout` does it: the task is cancelled and the cancellation is taken back here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

from qreward.events import Call, Observer
from qreward.policy.hedge import HedgePolicy
from qreward.runtime.attempt import attempt_once
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.watch import passes_through

T = TypeVar("T")

LOOK_AGAIN_S = 0.05
_losers: set[asyncio.Task[Any]] = set()  # cancelled tasks that still unwind must not be collected


class Race(Generic[T]):
    """One attempt and its duplicates; used once."""

    def __init__(
        self,
        policy: HedgePolicy,
        gate: Gate,
        attempt: Callable[[], Awaitable[T]],
        call: Call,
        observer: Observer | None,
    ) -> None:
        self._policy = policy
        self._gate = gate
        self._attempt = attempt
        self._call = call
        self._observer = observer
        self._hedges: list[asyncio.Task[T]] = []
        self._unstarted: dict[asyncio.Task[T], Permit] = {}
        self._winner: asyncio.Task[T] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._inline = True  # the first attempt is still running
        self._interrupted = False

    async def run(self, permit: Permit) -> T:
        """The first answer. When all fail: the first attempt's exception."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a hedged call runs inside an asyncio task; await it from a coroutine")
        self._task, self._loop, self._cancelling = task, task.get_loop(), task.cancelling()
        self._schedule(self._loop.time())
        try:
            return await self._first(permit)
        except BaseException as exc:
            if passes_through(exc):
                raise
            # Only an answer can save the call now; a new duplicate would be a retry.
            self._stop_timer()
            winner = await self._next_answer()
            if winner is None:
                raise
            return winner.result()
        finally:
            self._stop_timer()
            self._dismiss()

    async def _first(self, permit: Permit) -> T:
        try:
            value = await attempt_once(self._gate, permit, self._attempt, self._call, self._observer)
        except BaseException:
            self._inline = False
            if self._taken_back() and self._winner is not None:
                return self._winner.result()
            raise
        self._inline = False
        if not self._taken_back():
            raise asyncio.CancelledError  # one from outside came together with ours, and the attempt swallowed both
        return value

    def _taken_back(self) -> bool:
        """Undo our own interruption; False when somebody else cancelled the task as well."""
        if self._interrupted:
            self._interrupted = False
            return self._task.uncancel() <= self._cancelling
        return True

    # -- duplicates --------------------------------------------------------------------------------------------------

    def _schedule(self, began: float) -> None:
        """Set the timer for the first duplicate; while the quantile is not known yet, look again a little later."""
        self._timer = None
        if not self._inline:
            return
        delay = self._gate.hedge_delay(self._policy)
        if delay is None:
            self._timer = self._loop.call_later(LOOK_AGAIN_S, self._schedule, began)
        else:
            left = max(0.0, began + delay - self._loop.time())
            self._timer = self._loop.call_later(left, self._launch, delay)

    def _launch(self, delay: float) -> None:
        self._timer = None
        if not self._inline:
            return
        permit = self._gate.try_hedge()
        if permit is not None:
            self._call.hedges += 1
            hedge = self._loop.create_task(self._duplicate(permit))
            self._unstarted[hedge] = permit
            hedge.add_done_callback(self._answered)
            self._hedges.append(hedge)
        if len(self._hedges) < self._policy.max_hedges:
            self._timer = self._loop.call_later(delay, self._launch, delay)

    async def _duplicate(self, permit: Permit) -> T:
        me = asyncio.current_task()
        if me is not None:
            self._unstarted.pop(me, None)
        return await attempt_once(self._gate, permit, self._attempt, self._call, self._observer, hedge=True)

    def _answered(self, hedge: asyncio.Task[T]) -> None:
        permit = self._unstarted.pop(hedge, None)
        if permit is not None:  # cancelled before its first step
            self._gate.abandoned(permit)
        if hedge.cancelled() or hedge.exception() is not None or self._winner is not None:
            return
        self._winner = hedge
        if self._inline:
            self._interrupted = True
            self._task.cancel()

    async def _next_answer(self) -> asyncio.Task[T] | None:
        pending = {hedge for hedge in self._hedges if not hedge.done()}
        while pending and self._winner is None:
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        answers = [h for h in self._hedges if h.done() and not h.cancelled() and h.exception() is None]
        return self._winner or (answers[0] if answers else None)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _dismiss(self) -> None:
        for hedge in self._hedges:
            if not hedge.done():
                _losers.add(hedge)
                hedge.add_done_callback(_losers.discard)
                hedge.cancel()
