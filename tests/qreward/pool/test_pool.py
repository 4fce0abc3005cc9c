"""ComputePool: the right source at the right price, nothing lost when sources fail."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from aiohttp import web

from qreward.client.pool import CallableSource, ComputePool, OpenAISource, RewardServiceSource
from qreward.errors import ConfigError, DeadlineExceeded, NoHealthySource
from qreward.testing import Delay, FakeJudge, Reply, eventually


def ask(text: Any) -> list[dict[str, str]]:
    return [{"role": "user", "content": str(text)}]


BATCH = [ask(i) for i in range(60)]
ECHOES = [f"echo:{i}" for i in range(60)]


@pytest.fixture
async def judges() -> AsyncIterator[list[FakeJudge]]:
    async with FakeJudge() as a, FakeJudge() as b:
        yield [a, b]


def source(name: str, judge: FakeJudge, **more: Any) -> OpenAISource:
    return OpenAISource(name, judge.url, api_key=f"key-{name}", **more)


def received(judges: list[FakeJudge]) -> list[int]:
    return [judge.counters.received for judge in judges]


async def test_a_batch_is_spread_and_answered_in_order(judges: list[FakeJudge]) -> None:
    """Two equal sources share a batch; answers belong to their prompts; each source is asked with its own key."""
    pool = ComputePool([source("a", judges[0]), source("b", judges[1])])
    async with pool:
        assert await pool.batch_chat_completion(BATCH, "m") == ECHOES
        assert min(received(judges)) >= 10
        headers = await asyncio.gather(*(pool.chat_completion(ask("__echo_headers__"), "m") for _ in range(20)))
    assert {text[text.index("Bearer ") :][7:12] for text in headers} == {"key-a", "key-b"}


async def test_models_decide_which_source_serves(judges: list[FakeJudge]) -> None:
    """Globs of model names; a model that nobody serves is an error that lists the sources."""
    async with ComputePool(
        [source("a", judges[0], models=["qwen*"]), source("b", judges[1], models=["gpt-4"])]
    ) as pool:
        await pool.chat_completion(ask("x"), "qwen-7b")
        await pool.chat_completion(ask("x"), "gpt-4")
        with pytest.raises(NoHealthySource, match=r"'llama'.*a \(openai\), b \(openai\)"):
            await pool.chat_completion(ask("x"), "llama")
    assert received(judges) == [1, 1]


@pytest.mark.parametrize("dead", ["reset", "500", "503"])
async def test_a_failing_source_loses_no_task(judges: list[FakeJudge], dead: Any) -> None:
    """Every task that fails at one source is answered by the other."""
    judges[0].faults.set(dead=dead)
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        assert await pool.batch_chat_completion(BATCH, "m") == ECHOES


async def test_a_hanging_source_is_given_up(judges: list[FakeJudge]) -> None:
    """Tasks stuck at a source that stopped answering continue at the other, and the source is out of service."""
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        await pool.batch_chat_completion(BATCH, "m")
        judges[0].faults.set(dead="hang")
        assert await pool.batch_chat_completion(BATCH, "m") == ECHOES
        states = {s["name"]: s["state"] for s in pool.snapshot()["sources"]}
    assert states["b"] == "healthy"
    assert states["a"] != "healthy"
    assert judges[0].counters.client_gone > 1


async def test_a_client_error_is_final(judges: list[FakeJudge]) -> None:
    """A 400 is raised after one request and says nothing against the source."""
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        with pytest.raises(openai.BadRequestError):
            await pool.chat_completion([], "m")
        assert {s["state"] for s in pool.snapshot()["sources"]} == {"healthy"}
    assert sum(received(judges)) == 1


async def test_what_may_not_run_twice_is_sent_once(judges: list[FakeJudge]) -> None:
    """idempotent=False: a 500 is raised, a refusal moves to the other source."""
    for judge in judges:
        judge.script(500)
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        with pytest.raises(openai.InternalServerError):
            await pool.chat_completion(ask("x"), "m", idempotent=False)
        assert sum(received(judges)) == 1
    for judge in judges:
        judge.reset()
    judges[0].script(Reply(429, retry_after=30))
    judges[1].script(Reply(429, retry_after=0.05))
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        assert await pool.chat_completion(ask("y"), "m", idempotent=False) == "echo:y"


async def test_paid_sources_stay_idle_while_nothing_is_urgent(judges: list[FakeJudge]) -> None:
    """Without a deadline all tasks wait for the free source, however slow it is."""
    judges[0].faults.set(latency_s=0.02)
    async with ComputePool([source("free", judges[0], max_concurrent=2), source("paid", judges[1], price=5.0)]) as pool:
        await pool.batch_chat_completion(BATCH[:20], "m")
    assert received(judges) == [20, 0]


async def test_a_deadline_buys_what_it_needs(judges: list[FakeJudge]) -> None:
    """Tasks with a deadline that the free source cannot make spill over to the paid one, and its spend is counted."""
    judges[0].faults.set(latency_s=0.1)
    async with ComputePool([source("free", judges[0], max_concurrent=2), source("paid", judges[1], price=5.0)]) as pool:
        answers = await pool.batch_chat_completion(BATCH[:30], "m", deadline_s=0.8)
        spend = {s["name"]: s["spend"] for s in pool.snapshot()["sources"]}
    assert answers == ECHOES[:30]
    free, paid = received(judges)
    assert free >= 4
    assert paid >= 10
    assert spend["free"] == 0.0 < spend["paid"]


async def test_an_outage_spills_only_when_allowed(judges: list[FakeJudge]) -> None:
    """With spill_on_outage a paid source takes over while no free one is in service; without, the task waits."""
    await judges[0].stop()

    def sources() -> list[OpenAISource]:
        return [source("free", judges[0]), source("paid", judges[1], price_per_call=0.01)]

    async with ComputePool(sources(), spill_on_outage=True) as pool:
        assert await pool.chat_completion(ask("x"), "m") == "echo:x"
    async with ComputePool(sources()) as pool:
        with pytest.raises(DeadlineExceeded, match="free ejected"):
            await asyncio.wait_for(_without_paid(pool), 30)


async def _without_paid(pool: ComputePool) -> None:
    task = asyncio.create_task(pool.chat_completion(ask("x"), "m"))
    done, _ = await asyncio.wait({task}, timeout=0.5)
    assert not done
    task.cancel()
    states = ", ".join(f"{s['name']} {s['state']}" for s in pool.snapshot()["sources"])
    raise DeadlineExceeded(states)


async def test_all_are_cooling_down_so_the_first_to_return_is_waited_for(judges: list[FakeJudge]) -> None:
    """Both sources ask for a pause; the task is answered by the one that returns first."""
    judges[0].script(Reply(429, retry_after=0.2))
    judges[1].script(Reply(429, retry_after=20))
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        assert await pool.chat_completion(ask("x"), "m", deadline_s=10) == "echo:x"
    assert received(judges) == [2, 1]


async def test_a_deadline_that_cannot_be_met_says_why(judges: list[FakeJudge]) -> None:
    """DeadlineExceeded names the sources and their state; the request is left."""
    judges[0].faults.set(dead="hang")
    async with ComputePool([source("a", judges[0])]) as pool:
        with pytest.raises(DeadlineExceeded, match=r"chat 'm' within 0.1 s; sources: a healthy"):
            await pool.chat_completion(ask("x"), "m", deadline_s=0.1)
        await eventually(lambda: judges[0].counters.client_gone)


async def test_request_quotas_hold_at_the_server(judges: list[FakeJudge]) -> None:
    """A source with 600 requests a minute is asked about every tenth of a second, the other does the rest."""
    async with ComputePool([source("slow", judges[0], requests_per_min=600), source("b", judges[1])]) as pool:
        await pool.batch_chat_completion(BATCH, "m")
        times = judges[0].counters.arrived_at
    assert received(judges)[1] >= 40
    assert all(later - earlier > 0.05 for earlier, later in itertools.pairwise(times))


async def test_token_quotas_are_settled_by_usage(judges: list[FakeJudge]) -> None:
    """What was reserved for an answer and not used is free again; a used-up quota sends tasks elsewhere."""
    async with ComputePool([source("a", judges[0], tokens_per_min=1000), source("b", judges[1], weight=0.001)]) as pool:
        for i in range(10):
            await pool.chat_completion(ask(i), "m")
        assert received(judges) == [10, 0]  # estimated 256 each, used 3
        await pool.chat_completion(ask("x"), "m", max_tokens=100_000)
        left = pool.snapshot()["sources"][0]["tokens_left"]
    assert 900 < left <= 1000


async def test_priorities_share_and_nobody_starves() -> None:
    """Urgent tasks get most of the turns of a busy source, the least urgent still get some."""
    order: list[int] = []

    async def work(priority: int) -> None:
        order.append(priority)
        await asyncio.sleep(0)

    async with ComputePool([CallableSource("f", work, max_concurrent=1)]) as pool:
        await asyncio.gather(*(pool.call(p, priority=p) for p in [9] * 40 + [0] * 40))
    first = Counter(order[:33])
    assert first[0] >= 27
    assert first[9] >= 2


async def test_callables_of_both_kinds_by_tag() -> None:
    """Sync functions run in threads, async ones in the loop; tags keep them apart; failures move on."""
    calls: list[str] = []

    def broken(text: str, suffix: str = "") -> str:
        calls.append("broken")
        raise ConnectionError("down")

    async def works(text: str, suffix: str = "") -> str:
        calls.append("works")
        return text.upper() + suffix

    async with ComputePool(
        [
            CallableSource("broken", broken, tag="upper"),
            CallableSource("works", works, tag="upper", weight=0.001),
            CallableSource("other", lambda text: text[::-1], tag="reverse"),
        ]
    ) as pool:
        assert await pool.call("abc", tag="upper", suffix="!") == "ABC!"
        assert await pool.call("abc", tag="reverse") == "cba"
    assert calls == ["broken", "works"]


async def test_reward_services_are_sources_too() -> None:
    """Requests go to a service that has all their rewards; its answer comes back; a dead one is passed over."""
    seen: list[list[str]] = []

    async def score(request: web.Request) -> web.Response:
        body = await request.json()
        seen.append([item["required_rewards"][0] for item in body["requests"]])
        return web.json_response({"results": [{"clip": {"score": 0.5}}], "errors": [{}]})

    app = web.Application()
    app.router.add_post("/score", score)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    request = {"history": [{"text": "a cat", "image_b64": "…"}], "required_rewards": ["clip"]}
    try:
        async with ComputePool(
            [
                RewardServiceSource("gone", "http://127.0.0.1:9", rewards=["clip"]),
                RewardServiceSource("here", url, rewards=["clip", "hps*"], weight=0.001),
            ]
        ) as pool:
            scores = await pool.score([request])
            assert scores.results == [{"clip": {"score": 0.5}}]
            with pytest.raises(NoHealthySource, match="aesthetic"):
                await pool.score([{**request, "required_rewards": ["aesthetic"]}])
    finally:
        await runner.cleanup()
    assert seen == [["clip"]]


async def test_streams_move_until_their_first_piece(judges: list[FakeJudge]) -> None:
    """A stream that cannot begin at one source is read from the other; one that breaks later is raised."""
    async with ComputePool([source("a", judges[0]), source("b", judges[1], weight=0.001)]) as pool:
        judges[0].script(503)
        assert "".join([p async for p in pool.stream_chat_completion(ask("hello"), "m")]) == "echo:hello"
        judges[0].script("truncated")
        judges[1].script("truncated")
        with pytest.raises(openai.APIConnectionError):
            _ = [p async for p in pool.stream_chat_completion(ask("a long enough text"), "m")]


async def test_embeddings(judges: list[FakeJudge]) -> None:
    """Embeddings go through the pool like chats."""
    async with ComputePool([source("a", judges[0])]) as pool:
        one, two = await pool.embeddings(["a", "b"], "m")
        assert one.embedding != two.embedding


def test_synchronous_code_uses_the_pool_too() -> None:
    """`pool.run` makes a task from code without an event loop, from several threads at once."""
    with FakeJudge().in_thread() as judge:
        pool = ComputePool([source("a", judge)])
        assert pool.run(pool.chat_completion, ask("x"), "m") == "echo:x"
        assert pool.run(pool.batch_chat_completion, BATCH, "m") == ECHOES
        pool.run(pool.aclose)


async def test_a_cancelled_task_leaves_nothing_behind(judges: list[FakeJudge]) -> None:
    """Cancelling waiting and running tasks frees their places."""
    judges[0].faults.set(dead="hang")
    async with ComputePool([source("a", judges[0], max_concurrent=1)]) as pool:
        tasks = [asyncio.create_task(pool.chat_completion(ask(i), "m")) for i in range(5)]
        await eventually(lambda: judges[0].counters.received)
        assert sum(pool.snapshot()["waiting"].values()) == 4
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert pool.snapshot()["waiting"] == {}
        assert pool.snapshot()["sources"][0]["inflight"] == 0
        judges[0].faults.set(dead="no")
        assert await pool.chat_completion(ask("x"), "m") == "echo:x"


async def test_a_late_answer_of_a_slow_source_is_still_an_answer(judges: list[FakeJudge]) -> None:
    """A single slow request at a source that answers others is not taken for a hang."""
    async with ComputePool([source("a", judges[0]), source("b", judges[1])]) as pool:
        await pool.batch_chat_completion(BATCH, "m")
        judges[0].script(Delay(1.3))
        judges[1].script(Delay(1.3))
        slow = [asyncio.create_task(pool.chat_completion(ask(f"slow {i}"), "m")) for i in range(2)]
        until = time.monotonic() + 1.2
        while time.monotonic() < until:
            await pool.chat_completion(ask("quick"), "m")
        assert await asyncio.gather(*slow) == ["echo:slow 0", "echo:slow 1"]


def test_names_must_differ_and_numbers_make_sense(judges: object) -> None:
    """Duplicate names and impossible limits are refused by name."""
    one = CallableSource("f", len)
    with pytest.raises(ConfigError, match="'f'"):
        ComputePool([one, CallableSource("f", len)])
    with pytest.raises(ConfigError, match="weight"):
        CallableSource("g", len, weight=0)
