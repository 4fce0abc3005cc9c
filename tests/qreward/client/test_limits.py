"""The gate of a proxy, seen at the server and through its views."""

from __future__ import annotations

import asyncio

import pytest

from qreward.client.openai import OpenAIChatProxy
from qreward.errors import ConfigError
from qreward.testing import eventually


def prompts(n: int) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": str(i)}] for i in range(n)]


async def test_max_concurrent_holds_at_the_server(judge, proxy_for, hello):
    """However many calls are made at once, the server sees max_concurrent."""
    judge.faults.set(latency_s=0.01)
    proxy = proxy_for(judge.url, max_concurrent=3)
    await asyncio.gather(*(proxy.chat_completion(hello, "m") for _ in range(20)))
    assert judge.counters.max_inflight == 3


async def test_with_max_concurrent_works_after_the_first_call(judge, proxy_for, hello):
    """A new limit holds at once, also for calls that wait already."""
    judge.faults.set(latency_s=0.02)
    proxy = proxy_for(judge.url, max_concurrent=1, adaptive=False)
    calls = [asyncio.create_task(proxy.chat_completion(hello, "m")) for _ in range(12)]
    await eventually(lambda: judge.counters.inflight)
    assert proxy.with_max_concurrent(6) is proxy
    await asyncio.gather(*calls)
    assert judge.counters.max_inflight == 6
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        proxy.with_max_concurrent(0)


async def test_rate_holds_at_the_server(judge, proxy_for, hello):
    """No window of the period sees more starts than the bucket holds."""
    proxy = proxy_for(judge.url, rate_limiter_bucket_size=10, rate_limiter_bucket_period=0.5)
    await proxy.batch_chat_completion(prompts(25), "m")
    assert judge.counters.max_in_window(0.45) <= 10  # the network may move a request


async def test_a_slow_start_and_the_opt_out(judge, proxy_for, hello):
    """An adaptive proxy meets a new server with a few calls; adaptive=False sends all at once."""
    judge.faults.set(latency_s=0.05)
    await asyncio.gather(*(proxy_for(judge.url).chat_completion(hello, "m") for _ in range(1)))
    first = proxy_for(judge.url)
    await asyncio.gather(*(first.chat_completion(hello, "m") for _ in range(17)))
    assert judge.counters.max_inflight == 16
    judge.reset()
    bold = proxy_for(judge.url, adaptive=False)
    await asyncio.gather(*(bold.chat_completion(hello, "m") for _ in range(40)))
    assert judge.counters.max_inflight == 40


async def test_priority_decides_who_goes_first(judge, proxy_for):
    """Among calls that wait, the lower number goes first."""
    proxy = proxy_for(judge.url, max_concurrent=1)
    async with proxy.semaphore:
        calls = [
            asyncio.create_task(proxy.chat_completion(entry, "m", priority=9 - i)) for i, entry in enumerate(prompts(3))
        ]
        while proxy._gate.waiting < 3:
            await asyncio.sleep(0)
    await asyncio.gather(*calls)
    assert [arrival.text for arrival in judge.counters.arrivals] == ["2", "1", "0"]


async def test_the_semaphore_view(judge, proxy_for, hello):
    """It counts free slots like a semaphore, and holding it keeps calls waiting."""
    proxy = proxy_for(judge.url, max_concurrent=2)
    view = proxy.semaphore
    assert (view._value, view.locked()) == (2, False)
    async with view, view:
        assert (view._value, proxy.semaphore._value, view.locked()) == (0, 0, True)
        call = asyncio.create_task(proxy.chat_completion(hello, "m"))
        await asyncio.sleep(0)
        assert proxy._gate.waiting == 1
    assert await call == "echo:hello"
    assert view._value == 2
    with pytest.raises(ValueError, match="without acquire"):
        view.release()


async def test_the_rate_limiter_view(judge, proxy_for):
    """It reads like aiolimiter's, and passing it takes a start from the rate."""
    proxy = proxy_for(judge.url, rate_limiter_bucket_size=1, rate_limiter_bucket_period=60, max_concurrent=2)
    view = proxy.rate_limiter
    assert (view.max_rate, view.time_period) == (1, 60)
    async with view:
        assert proxy.semaphore._value == 2
        assert proxy._gate.try_enter() is None
    assert OpenAIChatProxy("http://h/v1", api_key="k").rate_limiter.max_rate == 50.0
