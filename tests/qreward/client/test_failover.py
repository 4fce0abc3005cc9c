"""When an endpoint counts as hanging, and who is told that one is back; the clock is moved, nobody waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import openai
import pytest

from qreward.client import OpenAIChatProxy, OpenAIChatProxyManager
from qreward.client.failover import Fleet
from qreward.errors import DeadlineExceeded
from qreward.runtime import clock
from qreward.testing import Delay, FakeJudge, eventually

Later = Callable[[float], None]


def ask(text: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": str(text)}]


@pytest.fixture
async def judges() -> AsyncIterator[list[FakeJudge]]:
    async with FakeJudge() as a, FakeJudge() as b:
        yield [a, b]


@pytest.fixture
async def manager(judges: list[FakeJudge]) -> AsyncIterator[OpenAIChatProxyManager]:
    async with OpenAIChatProxyManager() as manager:
        for i, judge in enumerate(judges):
            manager.add_proxy(f"e{i}", OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=None))
        yield manager


@pytest.fixture
def later() -> Iterator[Later]:
    """Move the clock on by so many seconds."""
    offset = 0.0

    def move(seconds: float) -> None:
        nonlocal offset
        offset += seconds

    clock.install(lambda: time.monotonic() + offset)
    yield move
    clock.reset()


def fleet_of(manager: OpenAIChatProxyManager) -> Fleet:
    assert manager._fleet is not None
    return manager._fleet


async def stuck_at(manager: OpenAIChatProxyManager, judge: FakeJudge, fault: Any) -> asyncio.Task[Any]:
    """A call on e0 that its judge has and does not answer."""
    judge.script(fault)
    before = judge.counters.received
    task = asyncio.create_task(manager.proxy("e0").chat_completion(ask("x"), "m"))
    await eventually(lambda: judge.counters.received != before)
    return task


async def test_silence_is_measured_by_the_usual_latency(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """With many quick answers known, one second of silence while the sibling is free is a hang."""
    await manager.batch_chat_completion([ask(i) for i in range(60)], "m")
    task = await stuck_at(manager, judges[0], "hang")
    later(0.5)
    fleet_of(manager).check()
    assert len(manager.healthy_proxies()) == 2
    later(1.0)
    fleet_of(manager).check()
    assert list(manager.healthy_proxies()) == ["e1"]
    assert await task == "echo:x"


async def test_few_answers_ask_for_more_patience(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """Without any answer nothing hangs; after the first one, some seconds of silence are a hang."""
    task = await stuck_at(manager, judges[0], "hang")
    later(100.0)
    fleet_of(manager).check()
    assert len(manager.healthy_proxies()) == 2
    task.cancel()
    await asyncio.wait({task})
    await manager.proxy("e1").chat_completion(ask("y"), "m")
    task = await stuck_at(manager, judges[0], "hang")
    later(3.0)
    fleet_of(manager).check()
    assert len(manager.healthy_proxies()) == 2
    later(3.0)
    fleet_of(manager).check()
    assert list(manager.healthy_proxies()) == ["e1"]
    assert await task == "echo:x"


async def test_false_alarms_teach_patience(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """An endpoint that was taken for hanging and answers its first probe had a long call: the next may be longer."""
    await manager.batch_chat_completion([ask(i) for i in range(60)], "m")
    task = await stuck_at(manager, judges[0], Delay(30))
    later(1.5)
    fleet_of(manager).check()
    assert list(manager.healthy_proxies()) == ["e1"]
    assert await task == "echo:x"
    later(5.0)
    await manager.chat_completion(ask("probe"), "m")
    assert len(manager.healthy_proxies()) == 2
    task = await stuck_at(manager, judges[0], Delay(30))
    later(1.5)
    fleet_of(manager).check()
    assert len(manager.healthy_proxies()) == 2
    later(1.0)
    fleet_of(manager).check()
    assert list(manager.healthy_proxies()) == ["e1"]
    assert await task == "echo:x"


async def test_waiting_calls_are_told_when_an_endpoint_is_back(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """The end of a probe, and the user's word, wake whoever waits for an endpoint."""
    await judges[1].stop()
    assert await manager.proxy("e1").chat_completion(ask("x"), "m") == "echo:x"
    assert list(manager.healthy_proxies()) == ["e0"]
    waiting = asyncio.create_task(fleet_of(manager).change(3600.0))
    await asyncio.sleep(0)
    await judges[1].start()
    later(5.0)
    await manager.chat_completion(ask("probe"), "m")
    await asyncio.wait_for(waiting, 5.0)
    waiting = asyncio.create_task(fleet_of(manager).change(3600.0))
    await asyncio.sleep(0)
    manager.mark_healthy("e1")
    await asyncio.wait_for(waiting, 5.0)


def test_a_loop_that_stands_still_does_not_keep_others_from_watching(later: Later) -> None:
    """A hang is noticed in a second event loop while the first, which had calls too, is open and not running."""
    first = asyncio.new_event_loop()
    with FakeJudge().in_thread() as a, FakeJudge().in_thread() as b:
        manager = OpenAIChatProxyManager()
        for i, judge in enumerate((a, b)):
            manager.add_proxy(f"e{i}", OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=None))
        first.run_until_complete(manager.batch_chat_completion([ask(i) for i in range(60)], "m"))

        async def second() -> Any:
            task = await stuck_at(manager, a, "hang")
            later(1.5)
            return await asyncio.wait_for(task, 5.0)

        assert asyncio.run(second()) == "echo:x"
        assert list(manager.healthy_proxies()) == ["e1"]
        first.run_until_complete(manager.aclose())
    first.close()


async def test_an_old_call_does_not_free_the_slot_of_the_probe(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """A call from before the ejection that is cancelled while the probe runs does not let a second probe in."""
    old = await stuck_at(manager, judges[0], "hang")
    judges[0].script("reset", "reset", "reset")
    for _ in range(3):
        await manager.proxy("e0").chat_completion(ask("y"), "m")
    assert list(manager.healthy_proxies()) == ["e1"]
    later(5.0)
    probe = manager.select_proxy()
    assert probe is manager.proxy("e0")
    old.cancel()
    await asyncio.gather(old, return_exceptions=True)
    assert manager.select_proxy() is manager.proxy("e1")
    assert await probe.chat_completion(ask("probe"), "m") == "echo:probe"
    assert len(manager.healthy_proxies()) == 2


async def test_a_stream_that_has_begun_is_not_repeated_after_an_outage(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge]
) -> None:
    """Both endpoints die in the middle of a stream: its failure is raised, though a new call would wait for them."""
    for judge in judges:
        judge.faults.set(sse_gap_s=0.5)
    stream = manager.stream_chat_completion(ask("a b c d e f g h"), "m")
    pieces = [await anext(stream)]
    for judge in judges:
        await judge.stop()
    with pytest.raises(DeadlineExceeded):
        await manager.chat_completion(ask("x"), "m", deadline_s=0.5)
    assert not manager.healthy_proxies()
    for judge in judges:
        judge.faults.set(sse_gap_s=0.0)
        await judge.start()
    with pytest.raises(openai.APIConnectionError):
        pieces += [piece async for piece in stream]
    assert "".join(pieces) != "echo:a b c d e f g h"


async def test_a_cancelled_probe_lets_the_next_one_in(
    manager: OpenAIChatProxyManager, judges: list[FakeJudge], later: Later
) -> None:
    """When the call that probes is cancelled, the next call probes, without a further pause."""
    judges[0].script("reset", "reset", "reset", "hang")
    for _ in range(3):
        await manager.proxy("e0").chat_completion(ask("x"), "m")
    later(5.0)
    probe = asyncio.create_task(manager.chat_completion(ask("probe"), "m"))
    await eventually(lambda: judges[0].counters.received >= 4)
    assert manager.select_proxy() is manager.proxy("e1")
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
    assert manager.select_proxy() is manager.proxy("e0")
