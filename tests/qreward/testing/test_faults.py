"""Faults of a judge: each happens when asked for, and only then."""

from __future__ import annotations

import asyncio
import random
import statistics

import aiohttp
import pytest

from qreward.testing import Delay, FakeJudge, Faults, Reply


async def test_a_script_is_followed_in_order(client):
    """Scripted steps come one per request, and then the judge is well again."""
    async with FakeJudge() as judge:
        judge.script(500, Reply(429, retry_after=2), Delay(0.001), "malformed", Reply(418, body=b"tea"), "ok")
        got = [await client.chat(judge) for _ in range(7)]
        assert [answer.status for answer in got] == [500, 429, 200, 200, 418, 200, 200]
        assert [answer.headers.get("Retry-After") for answer in got[:2]] == [None, "2"]
        assert [got[i].text for i in (2, 5, 6)] == ["echo:hi"] * 3
        assert (got[3].raw, got[4].raw) == (b'{"id": "chatcmpl-', b"tea")
        assert (judge.counters.ok, judge.counters.n["malformed"]) == (3, 1)


async def test_a_script_beats_the_fault_model(client):
    """Whatever the model says, a scripted request gets what the script says."""
    async with FakeJudge(dead="503", p500=1, p_malformed=1, p_truncated=1, rate=0.001) as judge:
        judge.script("ok", 404)
        assert (await client.chat(judge)).text == "echo:hi"
        assert [(await client.chat(judge)).status for _ in range(2)] == [404, 503]


async def test_an_unknown_step_is_refused():
    """A script with a word that does not exist is refused as a whole."""
    judge = FakeJudge()
    with pytest.raises(ValueError, match="no step 'explode'; there are"):
        judge.script("ok", "explode")


async def test_a_reset_breaks_the_connection(client):
    """A reset is `connection reset by peer` at the client, scripted, random or for ever."""
    async with FakeJudge() as judge:
        judge.script("reset")
        for faults in ({}, {"p_reset": 1}, {"p_reset": 0, "dead": "reset"}):
            judge.faults.set(**faults)
            with pytest.raises(aiohttp.ClientOSError, match="reset by peer"):
                await client.chat(judge)
        assert (judge.counters.n["reset"], judge.counters.received) == (3, 3)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("scripted", [False, True])
async def test_a_truncated_answer_ends_in_the_middle(client, stream, scripted):
    """The status and a part of the answer come, then the connection breaks."""
    async with FakeJudge(p_truncated=0 if scripted else 1) as judge:
        judge.script(*["truncated"] * scripted)
        body = {"messages": [{"role": "user", "content": "x" * 100}], "stream": stream}
        async with client.session.post(f"{judge.url}/chat/completions", json=body) as answer:
            assert (answer.status, b"chatcmpl-" in await answer.content.readany()) == (200, True)
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert (judge.counters.n["truncated"], judge.counters.ok) == (1, 0)


async def test_even_an_empty_stream_can_be_truncated(client):
    """An answer of one piece or none breaks before its end as well."""
    async with FakeJudge(answer=lambda _: "") as judge:
        judge.script("truncated")
        with pytest.raises(aiohttp.ClientPayloadError):
            await client.chat(judge, stream=True)


async def test_a_malformed_stream_has_an_event_that_is_no_json(client):
    """A stream can be malformed as well."""
    async with FakeJudge(p_malformed=1) as judge:
        assert (await client.chat(judge, stream=True)).raw == b'data: {"id": "chatcmpl-\n\n'


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_counted(client, until, stream):
    """A request ends when its client goes, hanging or in the middle of its stream, and `client_gone` says so."""
    async with FakeJudge(dead="no" if stream else "hang", sse_gap_s=100) as judge:
        task = asyncio.create_task(client.chat(judge, stream=stream))
        await until(lambda: judge.counters.inflight == 1 if stream else judge.counters.n["hung"] == 1)
        assert judge.counters.client_gone == 0
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: judge.counters.client_gone == 1)
        assert (judge.counters.ok, judge.counters.inflight) == (0, 0)


@pytest.mark.parametrize("slow", [{"latency_s": 1000}, {"stall_prob": 1, "stall_s": 1000}, {}])
async def test_latency_holds_the_answer_back(client, until, slow):
    """A slow request is in flight and unanswered; a stall is counted as one."""
    async with FakeJudge(**slow) as judge:
        judge.script(*[] if slow else [Delay(1000)])
        task = asyncio.create_task(client.chat(judge))
        await until(lambda: judge.counters.inflight == 1)
        assert (judge.counters.ok, judge.counters.n["stalled"]) == (0, "stall_s" in slow)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_the_time_of_an_answer():
    """Latencies are log-normal about the median, exact without sigma; stalls come as often as asked for, on top."""
    dice = random.Random(1)
    assert Faults(latency_s=0.04).service_time(dice) == (0.04, False)
    assert Faults().service_time(dice) == (0.0, False)
    spread = [Faults(latency_s=0.04, sigma=0.35).service_time(dice)[0] for _ in range(4000)]
    assert statistics.median(spread) == pytest.approx(0.04, rel=0.05)
    assert statistics.quantiles(spread, n=100)[83] == pytest.approx(0.04 * 2.718**0.35, rel=0.05)
    stalls = [Faults(latency_s=0.04, stall_prob=0.1, stall_s=3.0).service_time(dice) for _ in range(4000)]
    assert {round(seconds, 6) for seconds, stalled in stalls if stalled} == {3.04}
    assert sum(stalled for _, stalled in stalls) == pytest.approx(400, rel=0.2)


async def test_capacity_is_a_bound_on_concurrent_work(client):
    """Above its capacity the judge answers 503 and never works on more."""
    async with FakeJudge(latency_s=0.05, capacity=2) as judge:
        got = await asyncio.gather(*(client.chat(judge, str(i)) for i in range(10)))
        assert judge.counters.max_inflight == 2
        assert {answer.status for answer in got} == {200, 503}
        assert judge.counters.status(503) + judge.counters.ok == 10


async def test_random_faults_follow_the_seed(client):
    """The same seed fails the same requests, each kind as often as asked for."""
    runs = []
    for seed in (3, 3, 4):
        async with FakeJudge(p500=0.3, p400=0.3, seed=seed) as judge:
            runs.append([(await client.chat(judge)).status for _ in range(40)])
    assert runs[0] == runs[1] != runs[2]
    assert set(runs[0]) == {200, 400, 500}


@pytest.mark.parametrize("dead", ["500", "503"])
async def test_faults_change_live_through_the_admin_route(client, dead):
    """A fault set over HTTP holds from the next request; the counts can be asked for."""
    async with FakeJudge() as judge:
        assert (await client.chat(judge)).status == 200
        assert (await client.admin(judge, "config", {"dead": dead})).json["dead"] == dead
        assert (await client.chat(judge)).status == int(dead)
        stats = (await client.admin(judge, "stats?window=60")).json
        assert (stats["received"], stats["ok"], stats[dead]) == (2, 1, 1)
        assert (stats["max_in_window"], stats["max_admitted_in_window"]) == (2, 1)
        assert [(await client.admin(judge, path)).status for path in ("stats?window=x", "nothing")] == [400, 404]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"bogus": 1}, "no fault 'bogus'; there are burst, capacity"),
        ({"dead": "maybe"}, "dead must be one of no, reset, hang, 503, 500, not 'maybe'"),
        ({"p500": 1.5}, "p500 must be a probability from 0 to 1, not 1.5"),
        ({"p500": 0.6, "p_reset": 0.6}, "must be at most 1, not 1.2"),
        ({"latency_s": -1}, "latency_s must be float, 0 or more, not -1"),
        ({"capacity": 1.5}, "capacity must be int, 0 or more, not 1.5"),
        ({"retry_after": "soon"}, "retry_after must be exact, ceil, none or fixed:<seconds>, not 'soon'"),
        ({"key_rates": {"k": "x"}}, "key_rates must be requests per second by API key"),
        ({"charge_rejected": 1}, "charge_rejected must be true or false, not 1"),
    ],
)
async def test_a_fault_that_cannot_be_is_refused_by_name(client, wrong, reason):
    """A wrong fault changes nothing, says why, and is a 400 over HTTP."""
    async with FakeJudge() as judge:
        with pytest.raises((TypeError, ValueError)) as caught:
            judge.faults.set(sigma=0.5, **wrong)
        assert reason in str(caught.value)
        refused = await client.admin(judge, "config", {"sigma": 0.5, **wrong})
        assert (refused.status, reason in refused.json["error"]["message"]) == (400, True)
        assert judge.faults == Faults()
