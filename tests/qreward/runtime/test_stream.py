"""Streams through the driver: retried until the first item, never after, closed with their consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from qreward.events import Call
from qreward.policy.backoff import Backoff
from qreward.policy.hedge import HedgePolicy
from qreward.policy.retry import RetryPolicy
from qreward.runtime import clock
from qreward.runtime.driver import Plan
from qreward.runtime.gate import Gate
from qreward.runtime.spec import GateSpec
from qreward.runtime.stream import stream
from qreward.testing import run_virtual

RETRY = RetryPolicy(3, Backoff(base_s=0.1), (BaseException,))


class Source:
    """Every opening plays the next script: numbers are waits, exceptions are raised, the rest is yielded."""

    def __init__(self, *scripts: list[object]) -> None:
        self.scripts = list(scripts)
        self.opened = 0
        self.closed = 0

    async def __call__(self) -> AsyncIterator[object]:
        script = self.scripts[self.opened]
        self.opened += 1
        try:
            for step in script:
                if isinstance(step, float):
                    await asyncio.sleep(step)
                elif isinstance(step, BaseException):
                    raise step
                else:
                    yield step
        finally:
            self.closed += 1


def new_call() -> Call:
    return Call("k", "k", 5, clock.monotonic())


async def read(plan: Plan, source: Source, gate: Gate | None = None) -> list[object]:
    return [item async for item in stream(plan, gate or Gate("k"), source, new_call())]


def test_items_come_in_order() -> None:
    """A stream is handed through item by item."""
    assert run_virtual(read(Plan(), Source(["a", "b", "c"]))) == ["a", "b", "c"]


def test_a_failure_before_the_first_item_is_retried() -> None:
    """Nothing was seen yet, so the stream is opened again."""
    source = Source([ConnectionError("down")], ["a", "b"])
    assert run_virtual(read(Plan(retry=RETRY), source)) == ["a", "b"]
    assert (source.opened, source.closed) == (2, 2)


def test_a_failure_after_the_first_item_is_raised() -> None:
    """An item was seen, so a repetition would repeat it: the error is raised."""
    source = Source(["a", ConnectionError("down")], ["a", "b"])
    got: list[object] = []

    async def main() -> None:
        async for item in stream(Plan(retry=RETRY), Gate("k"), source, new_call()):
            got.append(item)  # noqa: PERF401 - what came before the error is the point

    with pytest.raises(ConnectionError):
        run_virtual(main())
    assert (got, source.opened) == (["a"], 1)


def test_a_consumer_that_stops_closes_the_stream_and_frees_the_permit() -> None:
    """Leaving the loop closes the generator and gives the permit back."""
    gate = Gate("k", GateSpec(concurrency=1))
    source = Source(["a", "b", "c"])

    async def main() -> None:
        items = stream(Plan(), gate, source, new_call())
        assert await anext(items) == "a"
        assert gate.inflight == 1
        await items.aclose()

    run_virtual(main())
    assert (source.closed, gate.inflight) == (1, 0)


def test_the_timeout_covers_the_whole_stream() -> None:
    """A stream that trickles beyond the timeout ends with TimeoutError."""
    source = Source(["a", 2.0, "b", 2.0, "c", 2.0, "d"])
    got: list[object] = []

    async def main() -> None:
        async for item in stream(Plan(timeout_s=5.0), Gate("k"), source, new_call()):
            got.append(item)  # noqa: PERF401 - what came before the error is the point

    with pytest.raises(TimeoutError, match="execute more than 5 seconds"):
        run_virtual(main())
    assert got == ["a", "b", "c"]
    assert source.closed == 1


def test_a_hedged_stream_is_won_by_the_first_item() -> None:
    """A stalled stream is overtaken before its first item; the loser is closed; every item comes from one stream."""
    gate = Gate("k")
    plan = Plan(hedge=HedgePolicy(delay_s=1.0, quantile=None, max_hedges=1))
    source = Source([50.0, "slow"], [0.5, "a", 5.0, "b"])

    async def main() -> tuple[list[object], float]:
        began = clock.monotonic()
        items = [item async for item in stream(plan, gate, source, new_call())]
        return items, clock.monotonic() - began

    items, took = run_virtual(main())
    assert (items, took) == (["a", "b"], pytest.approx(6.5))
    assert (source.closed, gate.inflight) == (2, 0)


def test_a_hedged_stream_survives_one_failing_contender() -> None:
    """The first stream fails while the duplicate runs: the duplicate is read to its end."""
    plan = Plan(hedge=HedgePolicy(delay_s=1.0, quantile=None, max_hedges=1))
    source = Source([1.5, ConnectionError("down")], [1.0, "a", "b"])
    assert run_virtual(read(plan, source)) == ["a", "b"]


def test_a_hedged_stream_that_is_left_closes_all_contenders() -> None:
    """A consumer cancelled during the race leaves no generator open and no permit taken."""
    gate = Gate("k")
    plan = Plan(hedge=HedgePolicy(delay_s=1.0, quantile=None, max_hedges=1))
    source = Source([50.0, "a"], [50.0, "b"])

    async def main() -> None:
        task = asyncio.create_task(read(plan, source, gate))
        await asyncio.sleep(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert (source.opened, source.closed, gate.inflight) == (2, 2, 0)
