"""Streams: an async generator under the same limits, retried and raced only until its first item."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TypeVar

from qreward.events import Call, Observer
from qreward.runtime import clock
from qreward.runtime.driver import Plan, enter, retry_delay
from qreward.runtime.gate import Gate
from qreward.runtime.source import Source
from qreward.runtime.stream_race import StreamRace
from qreward.runtime.watch import passes_through

T = TypeVar("T")


async def stream(
    plan: Plan, gate: Gate, opened: Callable[[], AsyncIterator[T]], call: Call, observer: Observer | None = None
) -> AsyncGenerator[T, None]:
    """Yield the items of *opened()*; a failure before the first item is retried, a later one is raised.

    *plan.timeout_s* bounds the whole stream, the consumer's own time included. The permit is held until the stream
    ends or the consumer closes it.
    """
    deadline = None if plan.timeout_s is None else clock.monotonic() + plan.timeout_s
    failures = 0
    while True:
        async with _bounded(deadline, plan):
            permit = await enter(gate, call)
        source: Source[T] | StreamRace[T]
        if plan.hedge is None:
            source = Source(opened, gate, permit, call, observer)
        else:
            source = StreamRace(plan.hedge, opened, gate, permit, call, observer)
        first = True
        try:
            while True:
                async with _bounded(deadline, plan):
                    item = await source.next()
                first = False
                yield item
        except StopAsyncIteration:
            source.succeeded()
            return
        except BaseException as exc:
            source.failed(exc)
            if passes_through(exc):
                raise
            call.error = exc
            failures += 1
            wait = retry_delay(plan, gate, exc, failures) if first else None
            if wait is None or (deadline is not None and clock.monotonic() >= deadline):
                raise
        finally:
            await source.close()
        call.retries += 1
        call.wait_s += wait
        async with _bounded(deadline, plan):
            await asyncio.sleep(wait)


@contextlib.asynccontextmanager
async def _bounded(deadline: float | None, plan: Plan) -> AsyncIterator[None]:
    """Raise TimeoutError when *deadline* passes inside; a scope never spans a yield to the consumer."""
    if deadline is None:
        yield
        return
    try:
        async with asyncio.timeout(max(0.0, deadline - clock.monotonic())) as scope:
            yield
    except TimeoutError as exc:
        if scope.expired():
            raise TimeoutError(f"execute more than {plan.timeout_s:g} seconds") from exc
        raise
