"""The promises of `schedule`, proven at the server: what arrives there, and how often."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from qreward.errors import CircuitOpenError
from qreward.testing import Delay, FakeJudge, Reply, eventually
from qreward.utils import schedule

Ask = Callable[[str], Awaitable[str]]


async def test_a_flaky_judge_costs_retries_and_loses_nothing(judge: FakeJudge, ask: Ask) -> None:
    """Each of 100 calls to a judge that fails a fifth of its requests gets its own answer."""
    judge.faults.set(p500=0.15, p_reset=0.05)
    ours = schedule(retry_times=8, retry_interval=0.01)(ask)
    got = await asyncio.gather(*(ours(str(i)) for i in range(100)))
    assert got == [f"echo:{i}" for i in range(100)]
    assert judge.counters.received > 100


async def test_a_bad_request_arrives_once(judge: FakeJudge, ask: Ask) -> None:
    """A 400 is not repeated."""
    judge.script(400)
    with pytest.raises(Exception, match="HTTP 400"):
        await schedule(retry_times=5, retry_interval=0.001)(ask)("x")
    assert judge.counters.received == 1


async def test_exception_types_choose_what_is_retried(judge: FakeJudge, ask: Ask) -> None:
    """An exception that is not listed ends the call at its first attempt."""
    judge.script(500, 500)
    with pytest.raises(Exception, match="HTTP 500"):
        await schedule(retry_times=5, retry_interval=0.001, exception_types=(ConnectionError,))(ask)("x")
    assert judge.counters.received == 1


async def test_retry_after_is_obeyed(judge: FakeJudge, ask: Ask) -> None:
    """After a 429 with Retry-After the next request comes no earlier."""
    judge.script(Reply(429, retry_after=0.3))
    await schedule(retry_times=1, retry_interval=0.001)(ask)("x")
    first, second = judge.counters.arrived_at
    assert second - first >= 0.3


async def test_no_window_holds_more_than_the_limit(judge: FakeJudge, ask: Ask) -> None:
    """With 10 per half second and 35 calls at once, no half second at the server sees more than 10."""
    ours = schedule(limit_size=10, limit_window=0.5)(ask)
    await asyncio.gather(*(ours(str(i)) for i in range(35)))
    assert judge.counters.received == 35
    assert judge.counters.max_in_window(0.45) <= 10  # the network may move a request


async def test_key_func_separates_the_limits(judge: FakeJudge, ask: Ask) -> None:
    """Calls under different keys do not wait for each other; calls under one key do."""
    ours = schedule(limit_size=1, limit_window=0.2, key_func=lambda text: text[0])(ask)
    await asyncio.gather(*(ours(text) for text in ("a1", "a2", "b1", "b2")))
    times = {a.text: a.at for a in judge.counters.arrivals}
    assert abs(times["a1"] - times["b1"]) < 0.2 <= times["a2"] - times["a1"]


async def test_async_and_sync_share_the_limit_of_a_key(judge: FakeJudge, ask: Ask) -> None:
    """An async and a sync function under one key together respect its limit."""
    starts: list[float] = []

    def named(func: Callable[..., object]) -> Callable[..., object]:
        func.__module__, func.__qualname__ = "shared", "key"
        return func

    async def body() -> None:
        starts.append(time.monotonic())

    def sync_body() -> None:
        starts.append(time.monotonic())

    limited = schedule(limit_size=2, limit_window=0.2)
    ours, theirs = limited(named(body)), limited(named(sync_body))
    thread = threading.Thread(target=lambda: [theirs() for _ in range(4)])
    thread.start()
    await asyncio.gather(*(ours() for _ in range(4)))  # type: ignore[misc]
    await asyncio.to_thread(thread.join)
    starts.sort()
    assert len(starts) == 8
    assert all(later - earlier >= 0.15 for earlier, later in zip(starts, starts[2:], strict=False))


async def test_a_hedge_overtakes_a_stall_and_its_loser_is_seen_leaving(judge: FakeJudge, ask: Ask) -> None:
    """The stalled request is overtaken; the server sees two requests and one disconnect."""
    judge.script(Delay(30))
    assert await schedule(hedged_request_time=0.05)(ask)("x") == "echo:x"
    await eventually(lambda: judge.counters.client_gone)
    assert (judge.counters.received, judge.counters.client_gone) == (2, 1)


async def test_hedges_are_a_share_of_the_calls(judge: FakeJudge, ask: Ask) -> None:
    """When every request is slow, hedges stay at the proportion instead of doubling the load."""
    judge.faults.set(latency_s=0.06)
    ours = schedule(hedged_request_time=0.02, hedged_request_proportion=0.05)(ask)
    await asyncio.gather(*(ours(str(i)) for i in range(200)))
    assert 200 < judge.counters.received <= 200 + 10 + 2


async def test_a_call_that_may_not_be_repeated_is_sent_once(judge: FakeJudge, ask: Ask) -> None:
    """With idempotent=False there are no hedges, and a 500 is final, but a refusal (429) is retried."""
    ours = schedule(hedged_request_time=0.01, retry_times=3, retry_interval=0.001, idempotent=False)(ask)
    judge.script(Delay(0.1))
    await ours("slow")
    assert judge.counters.received == 1
    judge.script(500)
    with pytest.raises(Exception, match="HTTP 500"):
        await ours("broken")
    assert judge.counters.received == 2
    judge.script(429)
    await ours("refused")
    assert judge.counters.received == 4


async def test_failures_never_multiply_the_load(judge: FakeJudge, ask: Ask) -> None:
    """A judge that is down gets at most one request of a call at a time, and few retries in all."""
    judge.faults.set(dead="500")
    ours = schedule(retry_times=2, retry_interval=0.01, speed_up_max_multiply=5)(ask)
    await asyncio.gather(*(ours(str(i)) for i in range(40)), return_exceptions=True)
    assert judge.counters.received <= 40 * 3
    assert judge.counters.max_in_window(0.05) <= 40 + 40 * 0.5 + 10 + 2


async def test_the_breaker_keeps_requests_away(judge: FakeJudge, ask: Ask) -> None:
    """After three failures the judge is left alone; after the recovery one probe closes the breaker."""
    judge.faults.set(dead="500")
    ours = schedule(circuit_breaker_threshold=3, circuit_breaker_recovery=0.2)(ask)
    for _ in range(3):
        with pytest.raises(Exception, match="HTTP 500"):
            await ours("x")
    with pytest.raises(CircuitOpenError) as refusal:
        await ours("x")
    assert isinstance(refusal.value, RuntimeError)
    assert 0 < refusal.value.retry_after <= 0.2
    assert judge.counters.received == 3
    judge.faults.set(dead="no")
    while True:
        try:
            await ours("probe")
            break
        except CircuitOpenError as wait:
            await asyncio.sleep(wait.retry_after)
    assert await ours("x") == "echo:x"
    assert judge.counters.received == 5


async def test_an_open_breaker_gives_the_default(judge: FakeJudge, ask: Ask) -> None:
    """With default_result an open breaker returns it, and the judge is not asked."""
    judge.faults.set(dead="500")
    ours = schedule(circuit_breaker_threshold=1, default_result="default")(ask)
    assert [await ours("x") for _ in range(5)] == ["default"] * 5
    assert judge.counters.received == 1


async def test_a_timeout_is_seen_as_a_disconnect(judge: FakeJudge, ask: Ask) -> None:
    """At the timeout the request is cancelled on the wire."""
    judge.faults.set(dead="hang")
    with pytest.raises(TimeoutError, match=r"execute more than 0\.1 seconds"):
        await schedule(timeout=0.1, retry_times=3)(ask)("x")
    await eventually(lambda: judge.counters.client_gone)
    assert judge.counters.received == 1


async def test_the_adaptive_limit_finds_the_capacity(judge: FakeJudge, ask: Ask) -> None:
    """Against a judge with room for 8, the adaptive limit refuses far fewer requests than a fixed limit of 64."""
    judge.faults.set(latency_s=0.01, capacity=8)

    async def refused(**settings: object) -> int:
        judge.reset()
        ours = schedule(retry_times=30, retry_interval=0.01, limit_size=64, limit_window=0.05, **settings)(ask)
        await asyncio.gather(*(ours(str(i)) for i in range(120)))
        return judge.counters.status(503)

    fixed = await refused()
    adaptive = await refused(adaptive_limit=True, adaptive_limit_min=1, adaptive_limit_max=64)
    assert adaptive < fixed / 2


async def test_priority_changes_the_order_of_arrival(judge: FakeJudge, ask: Ask) -> None:
    """Calls that wait for their turn arrive by priority."""

    def named(priority: int) -> Callable[[str], Awaitable[str]]:
        async def call(text: str) -> str:
            return await ask(text)

        call.__module__, call.__qualname__ = "shared", "ordered"
        return schedule(limit_size=1, limit_window=0.05, priority=priority)(call)

    low, normal, high = named(9), named(5), named(0)
    await asyncio.gather(low("first"), low("low"), normal("normal"), high("high"))
    assert [a.text for a in judge.counters.arrivals] == ["first", "high", "normal", "low"]
