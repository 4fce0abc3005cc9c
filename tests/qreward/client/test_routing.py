"""What managers and pools build on: single attempts, listeners, redirection, interruption."""

from __future__ import annotations

import asyncio

import openai
import pytest

from qreward.client.answers import content_of
from qreward.client.jobs import Job, content
from qreward.client.request import chat_request
from qreward.testing import eventually
from qreward.testing.faults import Delay
from qreward.testing.judge import FakeJudge


@pytest.fixture
async def other():
    async with FakeJudge() as other:
        yield other


async def test_one_attempt_without_gate_or_retries(proxy, judge, hello):
    """_chat_once sends exactly one request, also while the gate is full."""
    job = Job(chat_request(hello, "m", {}, 0.0, 5), content_of, content)
    async with proxy.with_max_concurrent(1).semaphore:
        assert await proxy._chat_once(job) == "echo:hello"
        judge.script(500)
        with pytest.raises(openai.InternalServerError):
            await proxy._chat_once(job)
    assert judge.counters.received == 2


async def test_listeners_hear_of_every_attempt(proxy, judge, hello):
    """Failures, answers and streams are told with their exception and latency; a listener that raises is logged."""
    heard = []
    stop = proxy.observe(lambda *event: heard.append(event))
    proxy.observe(lambda *event: 1 / 0)
    judge.script(500, "ok")
    await proxy.chat_completion(hello, "m")
    assert [piece async for piece in proxy.stream_chat_completion(hello, "m")]
    assert [(p is proxy, ok, type(exc)) for p, ok, exc, _ in heard] == [
        (True, False, openai.InternalServerError),
        (True, True, type(None)),
        (True, True, type(None)),
    ]
    assert all(latency >= 0 for *_, latency in heard)
    stop()
    await proxy.chat_completion(hello, "m")
    assert len(heard) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_redirect_moves_the_next_attempt(proxy, judge, other, proxy_for, hello, stream):
    """After a failure the call goes on at the sibling that the redirect names, whose slots it then uses."""
    sibling = proxy_for(other.url)
    asked = []

    def redirect(current, attempt):
        asked.append((current is proxy, attempt))
        return sibling if attempt > 1 else None

    proxy._redirect = sibling._redirect = redirect
    judge.script(500)
    if stream:
        assert "".join([piece async for piece in proxy.stream_chat_completion(hello, "m")]) == "echo:hello"
    else:
        assert await proxy.chat_completion(hello, "m") == "echo:hello"
    assert (judge.counters.received, other.counters.ok) == (1, 1)
    assert asked == [(True, 1), (True, 2)]
    assert proxy._gate.inflight == sibling._gate.inflight == 0


async def test_a_waiting_call_leaves_a_dead_endpoint(proxy, judge, other, proxy_for, hello):
    """A call that queued at a proxy which went out of service meanwhile is made elsewhere."""
    sibling = proxy_for(other.url)
    down = False
    proxy.with_max_concurrent(1)._redirect = lambda current, attempt: sibling if down else None
    judge.script(Delay(30))
    first = asyncio.create_task(proxy.chat_completion(hello, "m"))
    while not proxy._gate.inflight:
        await asyncio.sleep(0)
    second = asyncio.create_task(proxy.chat_completion(hello, "m"))
    while not proxy._gate.waiting:
        await asyncio.sleep(0)
    down = True
    first.cancel()
    assert await second == "echo:hello"
    assert other.counters.ok == 1
    assert (proxy._gate.inflight, sibling._gate.inflight) == (0, 0)


async def test_interrupt_frees_what_hangs(proxy, judge, other, proxy_for, hello):
    """Attempts in flight end with an APIConnectionError and go on at the sibling at once."""
    sibling = proxy_for(other.url)
    judge.faults.set(dead="hang")
    heard = []
    proxy.observe(lambda _, ok, exc, latency: heard.append(exc))
    proxy._redirect = lambda current, attempt: sibling if attempt > 1 else None
    calls = [asyncio.create_task(proxy.chat_completion(hello, "m")) for _ in range(3)]
    await eventually(lambda: judge.counters.n["hung"] >= 3)
    assert proxy.interrupt() == 3
    assert await asyncio.gather(*calls) == ["echo:hello"] * 3
    assert {type(exc) for exc in heard} == {openai.APIConnectionError}
    assert "does not answer" in str(heard[0])
    assert proxy.interrupt() == 0
