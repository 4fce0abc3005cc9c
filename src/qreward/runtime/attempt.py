"""One attempt under a permit: run, told to the observer, booked at the gate. Shared by the driver and the race."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from qreward.events import Call, Observer
from qreward.policy.classify import classify
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.watch import attempt_ended, attempt_started, passes_through

T = TypeVar("T")


async def attempt_once(
    gate: Gate,
    permit: Permit,
    attempt: Callable[[], Awaitable[T]],
    call: Call,
    observer: Observer | None,
    *,
    hedge: bool = False,
) -> T:
    """Run *attempt* and settle its permit, however it ends."""
    call.attempts += 1
    record = None if observer is None else attempt_started(observer, call, hedge)
    try:
        value = await attempt()
    except BaseException as exc:
        book_failure(gate, permit, exc)
        attempt_ended(observer, call, record, exc)
        raise
    gate.succeeded(permit)
    if record is not None:
        attempt_ended(observer, call, record, None)
    return value


def book_failure(gate: Gate, permit: Permit, exc: BaseException) -> None:
    """Settle the permit of an attempt that raised *exc*: nobody's fault, or judged by its type and status."""
    if passes_through(exc):
        gate.abandoned(permit)
    else:
        gate.failed(permit, exc, classify(exc, epoch=time.time()))
