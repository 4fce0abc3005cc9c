"""The one driver: attempts, retries, hedges and the deadline of a call, as the policies decide.

An attempt runs inline in the caller's task: no task is created unless a duplicate really goes out.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from qreward.errors import CircuitOpenError
from qreward.events import Call, Observer
from qreward.policy.classify import Kind, classify
from qreward.policy.hedge import HedgePolicy
from qreward.policy.retry import RetryPolicy
from qreward.runtime import clock
from qreward.runtime.attempt import attempt_once
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.race import Race
from qreward.runtime.watch import passes_through

T = TypeVar("T")

# A retry that the budget holds back longer than this is given up: the server is failing nearly everything. A server
# that only pushes back is worth a longer wait: it will answer.
MAX_BUDGET_WAIT_S = 10.0
MAX_OVERLOAD_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How one call is made. *timeout_s* is wall clock for everything, waiting included."""

    timeout_s: float | None = None
    retry: RetryPolicy | None = None
    hedge: HedgePolicy | None = None
    idempotent: bool = True


async def drive(
    plan: Plan, gate: Gate, attempt: Callable[[], Awaitable[T]], call: Call, observer: Observer | None = None
) -> T:
    """Make the call through *gate*; *attempt* is called once per try, hedges included.

    Raises the last attempt's own exception, CircuitOpenError before any attempt, or TimeoutError when *timeout_s*
    has passed.
    """
    if plan.timeout_s is None:
        return await _attempts(plan, gate, attempt, call, observer)
    try:
        async with asyncio.timeout(plan.timeout_s) as scope:
            return await _attempts(plan, gate, attempt, call, observer)
    except TimeoutError as exc:
        if scope.expired():
            raise TimeoutError(f"execute more than {plan.timeout_s:g} seconds") from (call.error or exc.__cause__)
        raise


async def _attempts(
    plan: Plan, gate: Gate, attempt: Callable[[], Awaitable[T]], call: Call, observer: Observer | None
) -> T:
    failures = 0
    while True:
        permit = await enter(gate, call)
        try:
            if plan.hedge is None:
                return await attempt_once(gate, permit, attempt, call, observer)
            return await Race(plan.hedge, gate, attempt, call, observer).run(permit)
        except BaseException as exc:
            if passes_through(exc):
                raise
            failures += 1
            call.error = exc
            wait = retry_delay(plan, gate, exc, failures)
            if wait is None:
                raise
        call.retries += 1
        call.wait_s += wait
        await asyncio.sleep(wait)


async def enter(gate: Gate, call: Call) -> Permit:
    """A permit for the next attempt of *call*. A retry that the breaker refuses raises the call's own last error."""
    try:
        permit = gate.try_enter(first=call.attempts == 0)
        if permit is None:
            began = clock.monotonic()
            try:
                permit = await gate.enter(call.priority)
            finally:
                call.wait_s += clock.monotonic() - began
    except CircuitOpenError as refusal:
        if call.error is not None:
            raise call.error from refusal
        call.outcome = "rejected"
        raise
    return permit


def retry_delay(plan: Plan, gate: Gate, exc: BaseException, failures: int) -> float | None:
    """Seconds to wait before the next attempt, or None when *exc* is final."""
    if plan.retry is None:
        return None
    verdict = classify(exc, epoch=time.time())
    wait = plan.retry.decide(exc, verdict, failures, random.random(), gate.load(), plan.idempotent)  # noqa: S311
    if wait is None:
        return None
    patience_s = MAX_OVERLOAD_WAIT_S if verdict.kind is Kind.OVERLOAD else MAX_BUDGET_WAIT_S
    held_back = gate.retry_wait(patience_s)
    return None if held_back > patience_s else max(wait, held_back)
