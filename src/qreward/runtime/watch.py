"""Telling an observer about attempts, and which exceptions are nobody's failure."""

from __future__ import annotations

import asyncio
import logging

from qreward.events import Attempt, Call, Observer
from qreward.runtime import clock

log = logging.getLogger("qreward.runtime")


class BodyExit(BaseException):
    """Carries an exception that must end the caller, not the loop that drives its call."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(cause)
        self.cause = cause


# Cancellation and the ends of the process pass through everything: no retry, no blame.
PASS_THROUGH = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit, BodyExit)


def passes_through(exc: BaseException) -> bool:
    """Whether *exc* ends the call without blame.

    A CancelledError that leaks out of a body although nobody cancelled the caller is a failure of the body.
    """
    if isinstance(exc, asyncio.CancelledError) and asyncio._get_running_loop() is not None:
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(exc, PASS_THROUGH)


def attempt_started(observer: Observer, call: Call, hedge: bool) -> Attempt:
    """A record of an attempt that begins now; *call* has counted it already."""
    record = Attempt(call.attempts, hedge, clock.monotonic())
    try:
        observer.attempt_started(call, record)
    except Exception:
        log.exception("observer %r failed at the start of an attempt of %s", observer, call.key)
    return record


def attempt_ended(observer: Observer | None, call: Call, record: Attempt | None, error: BaseException | None) -> None:
    """The attempt is over, with or without *error*."""
    if observer is None or record is None:
        return
    record.ended, record.error = clock.monotonic(), error
    try:
        observer.attempt_ended(call, record)
    except Exception:
        log.exception("observer %r failed at the end of an attempt of %s", observer, call.key)
