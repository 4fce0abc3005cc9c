"""The gate: order, limits, fairness and permits, in virtual time."""

from __future__ import annotations

import asyncio
import threading

import pytest

from qreward.errors import CircuitOpenError
from qreward.policy.classify import classify
from qreward.runtime import clock
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.spec import AdaptiveSpec, BreakerSpec, GateSpec
from qreward.testing import run_virtual


async def take(gate: Gate, priority: int = 5) -> Permit:
    return gate.try_enter() or await gate.enter(priority)


def fail(gate: Gate, permit: Permit, exc: BaseException) -> None:
    gate.failed(permit, exc, classify(exc))


def test_an_open_gate_lets_everybody_in_at_once() -> None:
    """Without limits `try_enter` always gives a permit."""
    gate = Gate("k")
    permits = [gate.try_enter() for _ in range(100)]
    assert all(permits)
    assert gate.inflight == 100


def test_concurrency_is_never_exceeded_and_never_wasted() -> None:
    """With a limit of 3 and 10 callers, 3 run at any moment until the last."""
    gate = Gate("k", GateSpec(concurrency=3))
    seen: list[int] = []

    async def caller() -> None:
        permit = await take(gate)
        seen.append(gate.inflight)
        await asyncio.sleep(1)
        gate.succeeded(permit)

    async def main() -> float:
        began = clock.monotonic()
        await asyncio.gather(*(caller() for _ in range(10)))
        return clock.monotonic() - began

    assert run_virtual(main()) == pytest.approx(4.0)
    assert max(seen) == 3
    assert gate.inflight == 0


def test_waiting_calls_start_by_priority_then_by_age() -> None:
    """Behind a full gate, 0 goes before 5 before 9, and equals go in the order of their arrival."""
    gate = Gate("k", GateSpec(concurrency=1))
    order: list[str] = []

    async def caller(name: str, priority: int) -> None:
        permit = await take(gate, priority)
        order.append(name)
        await asyncio.sleep(1)
        gate.succeeded(permit)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name, priority in [("first", 5), ("low", 9), ("b", 5), ("high", 0), ("c", 5)]:
                group.create_task(caller(name, priority))

    run_virtual(main())
    assert order == ["first", "high", "b", "c", "low"]


def test_a_call_of_low_priority_is_not_starved() -> None:
    """A call of priority 9 starts after about a minute although urgent calls keep coming."""
    gate = Gate("k", GateSpec(concurrency=1))

    async def urgent() -> None:
        while True:
            permit = await take(gate, 0)
            await asyncio.sleep(1)
            gate.succeeded(permit)

    async def main() -> float:
        tasks = [asyncio.create_task(urgent()) for _ in range(3)]
        await asyncio.sleep(0.5)
        began = clock.monotonic()
        permit = await take(gate, 9)
        waited = clock.monotonic() - began
        gate.succeeded(permit)
        for task in tasks:
            task.cancel()
        return waited

    assert 59 < run_virtual(main()) < 65


def test_the_rate_holds_in_every_window() -> None:
    """With 10 starts per second and 50 callers, no window of a second holds more than 10 starts."""
    gate = Gate("k", GateSpec(rate_size=10))
    starts: list[float] = []

    async def caller() -> None:
        permit = await take(gate)
        starts.append(clock.monotonic())
        gate.succeeded(permit)

    async def main() -> None:
        await asyncio.gather(*(caller() for _ in range(50)))

    run_virtual(main())
    assert all(later - earlier >= 1.0 for earlier, later in zip(starts, starts[10:], strict=False))
    assert starts[-1] - starts[0] < 5.2


def test_a_cancelled_waiter_leaves_its_place_to_the_next() -> None:
    """Cancelling a waiting call neither blocks the queue nor leaks a permit."""
    gate = Gate("k", GateSpec(concurrency=1))

    async def main() -> None:
        permit = await take(gate)
        waiting = [asyncio.create_task(gate.enter()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        gate.succeeded(permit)
        waiting[1].cancel()  # it has just been given the permit
        gate.succeeded(await waiting[2])
        assert gate.inflight == 0
        assert gate.waiting == 0

    run_virtual(main())


def test_the_breaker_fails_waiting_calls_when_it_opens() -> None:
    """Calls in the queue get CircuitOpenError when the breaker opens, and a probe later closes it."""
    gate = Gate("k", GateSpec(concurrency=1, breaker=BreakerSpec(threshold=1, recovery_s=5)))

    async def main() -> None:
        permit = await take(gate)
        waiting = asyncio.create_task(gate.enter())
        await asyncio.sleep(0)
        fail(gate, permit, ConnectionError("down"))
        with pytest.raises(CircuitOpenError) as refusal:
            await waiting
        assert refusal.value.retry_after == pytest.approx(5.0)
        with pytest.raises(CircuitOpenError):
            gate.try_enter()
        await asyncio.sleep(5.01)
        probe = await take(gate)
        gate.succeeded(probe)
        assert gate.snapshot()["breaker"] == "closed"

    run_virtual(main())


def test_a_cancelled_probe_frees_the_half_open_slot() -> None:
    """After a cancelled probe the next call may probe at once."""
    gate = Gate("k", GateSpec(breaker=BreakerSpec(threshold=1, recovery_s=5)))

    async def main() -> None:
        fail(gate, await take(gate), ConnectionError("down"))
        await asyncio.sleep(5.01)
        gate.abandoned(await take(gate))
        gate.succeeded(await take(gate))
        assert gate.snapshot()["breaker"] == "closed"

    run_virtual(main())


def test_a_new_spec_applies_to_calls_that_wait() -> None:
    """Raising the limit lets waiting calls in at once."""
    gate = Gate("k", GateSpec(concurrency=1))

    async def main() -> None:
        await take(gate)
        waiting = [asyncio.create_task(gate.enter()) for _ in range(4)]
        await asyncio.sleep(0)
        assert gate.waiting == 4
        gate.configure(GateSpec(concurrency=4))
        await asyncio.sleep(0)
        assert (gate.inflight, gate.waiting) == (4, 1)
        for task in waiting:
            task.cancel()

    run_virtual(main())


def test_adaptive_cuts_once_for_a_burst_of_rejections() -> None:
    """Twenty 503s of calls that ran together shrink the limit once, not twenty times."""

    class Busy(Exception):
        status_code = 503

    gate = Gate("k", GateSpec(adaptive=AdaptiveSpec(initial=20, minimum=1, maximum=40)))

    async def main() -> None:
        permits = [await take(gate) for _ in range(20)]
        await asyncio.sleep(0.1)
        fail(gate, permits[0], Busy())
        after_one = gate.limit
        for permit in permits[1:]:
            fail(gate, permit, Busy())
        assert gate.limit == after_one < 20

    run_virtual(main())


def test_duplicates_stay_within_their_budget() -> None:
    """With a proportion of 10 %, a thousand calls pay for about a hundred hedges and no more."""
    gate = Gate("k", GateSpec(hedge_ratio=0.1, hedge_burst=2))
    hedges = 0
    for _ in range(1000):
        permit = gate.try_enter(first=True)
        assert permit is not None
        hedge = gate.try_hedge()
        if hedge is not None:
            hedges += 1
            gate.abandoned(hedge)
        gate.succeeded(permit)
    assert 90 <= hedges <= 102


def test_no_duplicates_for_a_server_that_pushes_back() -> None:
    """After a 429 there are no hedges for a while."""

    class TooMany(Exception):
        status_code = 429

    gate = Gate("k", GateSpec(hedge_ratio=1.0))
    permit = gate.try_enter(first=True)
    assert permit is not None
    fail(gate, permit, TooMany())
    assert gate.try_hedge() is None


def test_threads_and_loops_share_one_gate() -> None:
    """Callers on four event loops in four threads never exceed the limit they share, and all finish."""
    gate = Gate("k", GateSpec(concurrency=2))
    seen: list[int] = []

    async def caller() -> None:
        for _ in range(50):
            permit = await take(gate)
            seen.append(gate.inflight)
            await asyncio.sleep(0)
            gate.succeeded(permit)

    async def main() -> None:
        await asyncio.gather(*(caller() for _ in range(4)))

    threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert len(seen) == 800
    assert max(seen) <= 2
    assert (gate.inflight, gate.waiting) == (0, 0)


def test_a_waiter_whose_loop_is_gone_does_not_hold_the_queue() -> None:
    """A loop that was closed under a waiting call costs neither a permit nor the others' turn."""
    gate = Gate("k", GateSpec(concurrency=1))
    holder = gate.try_enter()
    assert holder is not None
    dead = asyncio.new_event_loop()
    task = dead.create_task(gate.enter())
    dead.call_soon(dead.stop)
    dead.run_forever()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    dead.close()

    async def main() -> None:
        waiting = asyncio.create_task(gate.enter())
        await asyncio.sleep(0)
        gate.succeeded(holder)
        gate.succeeded(await waiting)
        assert gate.inflight == 0

    asyncio.run(main())


def test_a_timer_on_a_dead_loop_does_not_stop_the_others() -> None:
    """The head of the queue waited on a loop that was closed; the next caller still gets its turn in time."""
    gate = Gate("k", GateSpec(rate_size=1, rate_window_s=0.05))
    gate.succeeded(gate.try_enter())  # type: ignore[arg-type]
    dead = asyncio.new_event_loop()
    task = dead.create_task(gate.enter(0))
    dead.call_soon(dead.stop)
    dead.run_forever()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    dead.close()

    async def main() -> None:
        async with asyncio.timeout(20):
            gate.succeeded(await gate.enter(9))

    asyncio.run(main())
    assert gate.waiting == 0
