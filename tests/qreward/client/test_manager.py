"""Several endpoints as one: spread by strategy, survive death and hanging, lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from qreward.client import LoadBalanceStrategy, OpenAIChatProxy, OpenAIChatProxyManager
from qreward.errors import BatchError, DeadlineExceeded, NoHealthySource
from qreward.runtime import clock
from qreward.testing import FakeJudge, eventually


def ask(text: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": str(text)}]


BATCH = [ask(i) for i in range(60)]
ECHOES = [f"echo:{i}" for i in range(60)]


@pytest.fixture
async def judges() -> AsyncIterator[list[FakeJudge]]:
    async with FakeJudge() as a, FakeJudge() as b:
        yield [a, b]


def manager_of(judges: list[FakeJudge], strategy: Any = LoadBalanceStrategy.ROUND_ROBIN, **more: Any) -> Any:
    manager = OpenAIChatProxyManager(strategy, **more)
    for i, judge in enumerate(judges):
        proxy = OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=None)
        manager.add_proxy(f"e{i}", proxy, weight=3 - 2 * i)
    return manager


def received(judges: list[FakeJudge]) -> list[int]:
    return [judge.counters.received for judge in judges]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [(LoadBalanceStrategy.ROUND_ROBIN, [30, 30]), (LoadBalanceStrategy.WEIGHTED_ROUND_ROBIN, [45, 15])],
)
async def test_calls_are_spread_by_strategy(judges: list[FakeJudge], strategy: Any, shares: list[int]) -> None:
    """In turn, or by weight; answers come back in input order."""
    async with manager_of(judges, strategy) as manager:
        assert await manager.batch_chat_completion(BATCH, "m") == ECHOES
    assert received(judges) == shares


@pytest.mark.parametrize("strategy", [LoadBalanceStrategy.LEAST_CONNECTIONS, LoadBalanceStrategy.LATENCY_AWARE])
async def test_a_slow_endpoint_gets_fewer_calls(judges: list[FakeJudge], strategy: Any) -> None:
    """Both adaptive strategies send most calls to the endpoint that answers sooner."""
    judges[0].faults.set(latency_s=0.005)
    judges[1].faults.set(latency_s=0.2)
    async with manager_of(judges, strategy) as manager:
        for proxy in manager.proxies().values():
            proxy.with_max_concurrent(8)
        answers = await manager.batch_chat_completion([ask(i) for i in range(200)], "m")
    assert answers == [f"echo:{i}" for i in range(200)]
    quick, slow = received(judges)
    assert quick > 2 * slow


@pytest.mark.parametrize("dead", ["reset", "503", "500"])
async def test_a_dying_endpoint_loses_no_call(judges: list[FakeJudge], dead: Any) -> None:
    """Calls whose endpoint dies in the middle of a batch are answered by the other."""
    async with manager_of(judges) as manager:
        judges[1].faults.set(dead=dead)
        assert await manager.batch_chat_completion(BATCH, "m") == ECHOES


async def test_an_endpoint_that_is_gone_is_left_alone(judges: list[FakeJudge]) -> None:
    """After a refused connection no further call goes there, and it does not count as healthy."""
    async with manager_of(judges) as manager:
        await judges[1].stop()
        assert await manager.batch_chat_completion(BATCH, "m") == ECHOES
        assert list(manager.healthy_proxies()) == ["e0"]
        assert manager.select_proxy() is manager.proxy("e0")


async def test_an_endpoint_that_returns_is_used_again(judges: list[FakeJudge]) -> None:
    """One probe after the pause brings an endpoint back."""
    async with manager_of(judges) as manager:
        judges[1].faults.set(dead="reset")
        await manager.batch_chat_completion(BATCH, "m")
        assert "e1" not in manager.healthy_proxies()
        judges[1].faults.set(dead="no")
        while "e1" not in manager.healthy_proxies():
            await manager.chat_completion(ask("probe"), "m")
            await asyncio.sleep(0.02)
        before = received(judges)
        await manager.batch_chat_completion(BATCH, "m")
        assert received(judges)[1] - before[1] == 30


async def test_calls_stuck_at_a_hanging_endpoint_continue_elsewhere(judges: list[FakeJudge]) -> None:
    """An endpoint that stops answering is given up after about a second, and its calls are answered by the other."""
    async with manager_of(judges) as manager:
        await manager.batch_chat_completion(BATCH, "m")
        judges[1].faults.set(dead="hang")
        assert await manager.batch_chat_completion(BATCH, "m") == ECHOES
        assert "e1" not in manager.healthy_proxies()
    assert judges[1].counters.client_gone > 1


async def test_a_proxy_that_was_selected_fails_over_too(judges: list[FakeJudge]) -> None:
    """`select_proxy().chat_completion()` survives the death of its endpoint."""
    async with manager_of(judges) as manager:
        judges[1].faults.set(dead="reset")
        calls = [manager.select_proxy().chat_completion(messages, "m") for messages in BATCH]
        assert await asyncio.gather(*calls) == ECHOES


async def test_without_failover_a_proxy_stays_where_it_is(judges: list[FakeJudge]) -> None:
    """failover=False: a call fails with its endpoint."""
    async with manager_of(judges, failover=False) as manager:
        judges[0].faults.set(dead="500")
        with pytest.raises(openai.InternalServerError):
            await manager.proxy("e0").chat_completion(ask("x"), "m")
    assert received(judges)[1] == 0


async def test_when_all_are_gone_the_first_to_return_is_waited_for(judges: list[FakeJudge]) -> None:
    """Both endpoints die: calls that find out, and calls and streams made then, are answered when one is back."""
    async with manager_of(judges) as manager:
        for judge in judges:
            await judge.stop()
        first = asyncio.create_task(manager.chat_completion(ask("first"), "m"))
        await eventually(lambda: not manager.healthy_proxies())
        with pytest.raises(DeadlineExceeded, match="out of service"):
            await manager.chat_completion(ask("hurry"), "m", deadline_s=0.01)
        late = asyncio.create_task(manager.chat_completion(ask("late"), "m", deadline_s=30))
        await judges[0].start()
        assert "".join([p async for p in manager.stream_chat_completion(ask("stream"), "m")]) == "echo:stream"
        assert await asyncio.gather(first, late) == ["echo:first", "echo:late"]


async def test_new_calls_wait_for_the_probe(judges: list[FakeJudge]) -> None:
    """Of sixty calls made while everything is out of service, few reach the endpoint before the probe is answered."""
    async with manager_of(judges) as manager:
        for judge in judges:
            await judge.stop()
        with pytest.raises(DeadlineExceeded):
            await manager.chat_completion(ask("x"), "m", deadline_s=0.2)
        assert manager.healthy_proxies() == {}
        judges[0].faults.set(latency_s=0.1)
        await judges[0].start()
        calls = asyncio.create_task(manager.batch_chat_completion(BATCH, "m"))
        await eventually(lambda: judges[0].counters.ok)
        assert judges[0].counters.received <= 2
        judges[0].faults.set(latency_s=0.0)
        assert await calls == ECHOES


async def test_every_endpoint_that_is_due_gets_its_probe(judges: list[FakeJudge]) -> None:
    """A selected proxy takes one probe only: the next selection probes the other endpoint."""
    async with manager_of(judges) as manager:
        for judge in judges:
            await judge.stop()
        with pytest.raises(DeadlineExceeded):
            await manager.chat_completion(ask("x"), "m", deadline_s=0.5)
        assert not manager.healthy_proxies()
        began = clock.monotonic()
        clock.install(lambda: began + 5.0)
        try:
            assert {id(manager.select_proxy()) for _ in range(2)} == {id(p) for p in manager.proxies().values()}
        finally:
            clock.reset()


async def test_calls_that_take_long_everywhere_stay_where_they_are(judges: list[FakeJudge]) -> None:
    """When all answers suddenly take longer than what a hang would, no endpoint is given up and no call made twice."""
    async with manager_of(judges) as manager:
        await manager.batch_chat_completion(BATCH, "m")
        for judge in judges:
            judge.reset()
            judge.faults.set(latency_s=1.5)
        assert await manager.batch_chat_completion(BATCH, "m") == ECHOES
        assert len(manager.healthy_proxies()) == 2
    assert sum(received(judges)) == 60


async def test_a_marked_endpoint_takes_over_nothing(judges: list[FakeJudge]) -> None:
    """Calls of a dying endpoint do not move to one that the user took out, nor wait for it."""
    async with manager_of(judges, LoadBalanceStrategy.WEIGHTED_ROUND_ROBIN) as manager:
        manager.mark_unhealthy("e1")
        judges[0].script(*["reset"] * 2)
        assert await manager.chat_completion(ask("x"), "m") == "echo:x"
    assert received(judges) == [3, 0]


async def test_a_call_that_moves_shifts_no_turns(judges: list[FakeJudge]) -> None:
    """A call that fails over leaves the turns of new calls as they are."""
    async with FakeJudge() as third, manager_of([*judges, third]) as manager:
        judges[0].script("reset")
        turns = []
        for i in range(6):
            chosen = manager.select_proxy()
            turns += [key for key, proxy in manager.proxies().items() if proxy is chosen]
            if not i:
                assert await manager.proxy("e0").chat_completion(ask("x"), "m") == "echo:x"
    assert turns == ["e0", "e1", "e2", "e0", "e1", "e2"]


async def test_a_route_of_its_own_endpoints_hedges_inside(judges: list[FakeJudge]) -> None:
    """A duplicate of a routed call goes to another endpoint of the route, also when the manager has no others."""
    judges[0].faults.set(dead="hang")
    proxies = {str(i): OpenAIChatProxy(judge.url, api_key="k") for i, judge in enumerate(judges)}
    async with OpenAIChatProxyManager(hedge=0.05) as manager:
        manager.register_model_route("m*", proxies, {"0": 100}, LoadBalanceStrategy.WEIGHTED_ROUND_ROBIN)
        assert await manager.chat_completion(ask("x"), "m") == "echo:x"
    assert received(judges) == [1, 1]


async def test_the_most_specific_route_wins(judges: list[FakeJudge]) -> None:
    """Exact names before patterns, longer patterns before shorter, whatever the order of registration."""
    async with manager_of(judges) as manager:
        one, two = manager.proxies().values()
        manager.register_model_route("*", {"one": one})
        manager.register_model_route("qwen*", {"two": two})
        manager.register_model_route("qwen-exact", {"one": one})
        served = []
        for model in ("qwen-exact", "qwen-7b", "llama"):
            before = received(judges)
            await manager.chat_completion(ask("x"), model)
            served.append([i for i, n in enumerate(received(judges)) if n > before[i]])
        assert served == [[0], [1], [0]]


async def test_a_route_never_fails_over_to_a_server_without_the_model(judges: list[FakeJudge]) -> None:
    """A call for a routed model stays inside its route."""
    async with manager_of(judges) as manager:
        manager.register_model_route("special", {"one": manager.proxy("e0")})
        judges[0].faults.set(dead="500")
        with pytest.raises(openai.InternalServerError):
            await manager.chat_completion(ask("x"), "special")
    assert received(judges)[1] == 0


async def test_a_hedge_goes_to_another_endpoint(judges: list[FakeJudge]) -> None:
    """With hedge= a stalled call is duplicated at the other endpoint, and the stalled one is left."""
    judges[0].faults.set(dead="hang")
    async with manager_of(judges, hedge=0.05) as manager:
        assert await manager.chat_completion(ask("x"), "m") == "echo:x"
        await eventually(lambda: judges[0].counters.client_gone)
    assert received(judges) == [1, 1]


async def test_streams_and_embeddings_are_spread_too(judges: list[FakeJudge]) -> None:
    """Streams, batches of streams and embeddings use both endpoints, and streams fail over before their first piece."""
    async with manager_of(judges) as manager:
        judges[1].faults.set(dead="reset")
        for i in range(4):
            assert "".join([p async for p in manager.stream_chat_completion(ask(i), "m")]) == f"echo:{i}"
        judges[1].faults.set(dead="no")
        manager.mark_healthy("e1")
        texts = dict.fromkeys(range(60), "")
        async for index, piece in manager.batch_stream_chat_completion(BATCH, "m"):
            texts[index] += piece
        assert list(texts.values()) == ECHOES
        vectors = await manager.batch_embeddings(batch_sentences=[["a"], ["b"], ["a"]], model="m")
        assert vectors[0][0].embedding == vectors[2][0].embedding != vectors[1][0].embedding
    assert min(received(judges)) > 20


async def test_failures_of_a_batch_are_what_on_error_says(judges: list[FakeJudge]) -> None:
    """A refused entry is its exception, or a BatchError with all results."""
    async with manager_of(judges) as manager:
        batch = [ask("a"), [], ask("b")]
        answers = await manager.batch_chat_completion(batch, "m")
        assert [answers[0], type(answers[1]), answers[2]] == ["echo:a", openai.BadRequestError, "echo:b"]
        with pytest.raises(BatchError) as failure:
            await manager.batch_chat_completion(batch, "m", on_error="raise")
        assert failure.value.results[2] == "echo:b"


async def test_members_come_and_go(judges: list[FakeJudge]) -> None:
    """Duplicate keys, unknown keys, marks and removal behave as documented."""
    manager = manager_of(judges)
    with pytest.raises(ValueError, match="e0"):
        manager.add_proxy("e0", manager.proxy("e1"))
    with pytest.raises(KeyError, match="nobody"):
        manager.proxy("nobody")
    manager.mark_unhealthy("e0")
    assert (manager.select_proxy() is manager.proxy("e1"), manager.exist_proxy("e0")) == (True, True)
    await manager.remove_proxy("e1")
    await manager.remove_proxy("e1")
    with pytest.raises(NoHealthySource):
        manager.select_proxy()
    manager.mark_healthy("e0")
    assert await manager.chat_completion(ask("x"), "m") == "echo:x"
    await manager.close()
    await manager.aclose()


async def test_proxies_are_added_by_address(judges: list[FakeJudge]) -> None:
    """Several endpoints at once, each by its URL and key, with default settings."""
    addresses = {f"e{i}": (judge.url, f"key-{i}") for i, judge in enumerate(judges)}
    async with OpenAIChatProxyManager().add_proxies_with_default(addresses) as manager:
        echoed = [await manager.chat_completion(ask("__echo_headers__"), "m") for _ in range(2)]
    assert ["key-0" in echoed[0], "key-1" in echoed[1]] == [True, True]
