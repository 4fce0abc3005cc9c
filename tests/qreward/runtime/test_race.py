"""Hedging: the first answer wins, the others are cancelled, and nothing leaks, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from qreward.events import Call
from qreward.policy.backoff import Backoff
from qreward.policy.hedge import HedgePolicy
from qreward.policy.retry import RetryPolicy
from qreward.runtime import clock
from qreward.runtime.driver import Plan, drive
from qreward.runtime.gate import Gate
from qreward.runtime.spec import GateSpec
from qreward.testing import run_virtual


class Server:
    """Each attempt takes the next delay and gives the next answer."""

    def __init__(self, *script: tuple[float, object]) -> None:
        self.script = list(script)
        self.times: list[float] = []
        self.cancelled = 0

    async def __call__(self) -> object:
        self.times.append(clock.monotonic())
        delay, answer = self.script[len(self.times) - 1]
        try:
            await asyncio.sleep(delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer


def hedged(delay_s: float = 1.0, most: int = 2, **plan: object) -> Plan:
    return Plan(hedge=HedgePolicy(delay_s=delay_s, quantile=None, max_hedges=most), **plan)  # type: ignore[arg-type]


def new_call() -> Call:
    return Call("k", "k", 5, clock.monotonic())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def race(plan: Plan, server: Server, gate: Gate | None = None) -> tuple[object, float, Call]:
    gate = gate or Gate("k")
    call = Call("k", "k", 5, 0.0)

    async def main() -> tuple[object, float]:
        began = clock.monotonic()
        try:
            value = await drive(plan, gate, server, call)
        finally:
            took = clock.monotonic() - began
            await settle()
            assert gate.inflight == 0
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return value, took

    value, took = run_virtual(main())
    return value, took, call


def test_a_quick_answer_costs_no_duplicate() -> None:
    """An answer before the delay means one request."""
    server = Server((0.5, "value"))
    assert race(hedged(), server)[0] == "value"
    assert len(server.times) == 1


def test_the_duplicate_wins_over_a_stall() -> None:
    """A stalled attempt is overtaken after the delay, and cancelled."""
    server = Server((100.0, "late"), (0.5, "quick"))
    value, took, call = race(hedged(), server)
    assert (value, took) == ("quick", pytest.approx(1.5))
    assert (call.hedges, call.attempts, server.cancelled) == (1, 2, 1)


def test_the_first_attempt_may_still_win() -> None:
    """When the first attempt answers after the duplicate was sent, the duplicate is cancelled."""
    server = Server((1.2, "first"), (5.0, "second"))
    value, took, _ = race(hedged(), server)
    assert (value, took, server.cancelled) == ("first", pytest.approx(1.2), 1)


def test_several_duplicates_one_after_another() -> None:
    """The second duplicate follows the first by another delay, and there are no more than allowed."""
    server = Server((100.0, "a"), (100.0, "b"), (1.0, "c"))
    value, took, call = race(hedged(most=2), server)
    assert (value, took, call.hedges, server.cancelled) == ("c", pytest.approx(3.0), 2, 2)


def test_a_failure_waits_for_the_duplicate_that_runs() -> None:
    """The first attempt fails while a duplicate runs: its answer is the call's answer."""
    server = Server((1.5, ConnectionError("down")), (2.0, "saved"))
    value, took, _ = race(hedged(), server)
    assert (value, took) == ("saved", pytest.approx(3.0))


def test_a_failed_duplicate_does_not_end_the_call() -> None:
    """A duplicate that fails leaves the first attempt running."""
    server = Server((3.0, "first"), (0.1, ConnectionError("down")))
    value, took, _ = race(hedged(most=1), server)
    assert (value, took) == ("first", pytest.approx(3.0))


def test_when_all_fail_the_first_error_is_raised() -> None:
    """All attempts fail: the caller sees the first attempt's error."""
    error = ConnectionError("first")
    with pytest.raises(ConnectionError) as caught:
        race(hedged(most=1), Server((2.0, error), (5.0, ConnectionError("second"))))
    assert caught.value is error


def test_hedging_needs_no_retries_and_uses_none_up() -> None:
    """After a lost race with failures the call still has all its retries."""
    retry = RetryPolicy(1, Backoff(base_s=0.1), (BaseException,))
    server = Server((2.0, ConnectionError("a")), (3.0, ConnectionError("b")), (0.1, "value"))
    value, _, call = race(hedged(most=1, retry=retry), server)
    assert (value, call.retries, call.hedges) == ("value", 1, 1)


def test_a_cancelled_caller_cancels_all_its_attempts() -> None:
    """Cancelling the call cancels the first attempt and the duplicates."""
    server = Server((100.0, "a"), (100.0, "b"))
    gate = Gate("k")

    async def main() -> None:
        task = asyncio.create_task(drive(hedged(most=1), gate, server, new_call()))
        await asyncio.sleep(2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await settle()

    run_virtual(main())
    assert (server.cancelled, gate.inflight) == (2, 0)


def test_cancellation_together_with_a_win_is_a_cancellation() -> None:
    """When the caller is cancelled in the moment in which a duplicate wins, the call is cancelled."""
    server = Server((100.0, "a"), (1.0, "b"))

    async def main() -> None:
        task = asyncio.create_task(drive(hedged(most=1), Gate("k"), server, new_call()))
        asyncio.get_running_loop().call_later(2.0, task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())


def test_the_timeout_bounds_the_race() -> None:
    """The deadline ends a race in which nobody answers, and cancels everybody."""
    server = Server((100.0, "a"), (100.0, "b"))
    with pytest.raises(TimeoutError, match="execute more than 5 seconds"):
        race(hedged(most=1, timeout_s=5.0), server)
    assert server.cancelled == 2


def test_a_timeout_scope_inside_the_body_survives_the_interruption() -> None:
    """A body with its own asyncio.timeout loses the race like any other, and nothing stray arrives later."""
    calls = 0

    async def body() -> str:
        nonlocal calls
        calls += 1
        async with asyncio.timeout(50):
            await asyncio.sleep(100 if calls == 1 else 0.5)
        return "value"

    async def main() -> str:
        value = await drive(hedged(), Gate("k"), body, new_call())
        await asyncio.sleep(100)  # nothing of the interruption is left to arrive
        return value

    assert run_virtual(main()) == "value"


def test_a_body_that_swallows_the_interruption_still_answers() -> None:
    """An attempt that ignores its cancellation answers with its own value, and the task stays clean."""
    calls = 0

    async def body() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            return "second"
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "swallowed"
        return "never"

    async def main() -> tuple[str, int]:
        value = await drive(hedged(), Gate("k"), body, new_call())
        task = asyncio.current_task()
        assert task is not None
        return value, task.cancelling()

    assert run_virtual(main()) == ("swallowed", 0)


def test_the_budget_bounds_the_duplicates_of_a_stalled_server() -> None:
    """When every call stalls, duplicates stay a share of the calls: they do not double the load."""
    gate = Gate("k", GateSpec(hedge_ratio=0.05, hedge_burst=2))
    requests = 0

    async def stalled() -> str:
        nonlocal requests
        requests += 1
        await asyncio.sleep(10)
        return "value"

    async def main() -> None:
        await asyncio.gather(*(drive(hedged(), gate, stalled, new_call()) for _ in range(400)))

    run_virtual(main())
    assert 400 < requests <= 400 + 22


def test_a_quantile_adapts_to_the_latency_that_was_seen() -> None:
    """With ``p95`` there is no duplicate before latencies are known, and then one after about their p95."""
    gate = Gate("k")
    plan = Plan(hedge=HedgePolicy(delay_s=None, quantile=0.95, max_hedges=1))
    times: list[float] = []

    async def main() -> None:
        for i in range(40):  # 0.2 s down to 0.1 s: none is slower than what was seen before
            await drive(plan, gate, lambda i=i: asyncio.sleep(0.2 - i / 400), new_call())  # type: ignore[misc]

        async def stalled() -> None:
            times.append(clock.monotonic())
            await asyncio.sleep(100 if len(times) == 1 else 0.1)

        await drive(plan, gate, stalled, new_call())

    run_virtual(main())
    assert len(times) == 2
    assert 0.18 < times[1] - times[0] <= 0.2


def test_a_stall_among_the_first_calls_is_hedged_as_soon_as_latencies_are_known() -> None:
    """An attempt that began before the quantile was known is duplicated once it is."""
    gate = Gate("k")
    plan = Plan(hedge=HedgePolicy(delay_s=None, quantile=0.95, max_hedges=1))
    calls = 0

    async def answer() -> None:
        nonlocal calls
        calls += 1
        await asyncio.sleep(100 if calls == 1 else 0.1)

    async def main() -> float:
        began = clock.monotonic()
        await asyncio.gather(*(drive(plan, gate, answer, new_call()) for _ in range(30)))
        return clock.monotonic() - began

    assert run_virtual(main()) < 0.5


def test_a_cancellation_that_leaks_out_of_the_first_attempt_waits_for_the_duplicate() -> None:
    """CancelledError of a body that nobody cancelled is a failure like any other: a duplicate can save the call."""
    server = Server((1.5, asyncio.CancelledError()), (2.0, "saved"))
    value, took, _ = race(hedged(), server)
    assert (value, took) == ("saved", pytest.approx(3.0))
