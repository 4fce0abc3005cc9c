"""FakeJudge: every fault happens when asked for, and only then."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from qreward.testing import Delay, FakeJudge, Reply


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def chat(http: aiohttp.ClientSession, judge: FakeJudge, text: str = "hi", **extra: Any) -> tuple[int, bytes]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **extra}
    async with http.post(f"{judge.url}/chat/completions", json=body, headers={"Authorization": "Bearer k"}) as answer:
        return answer.status, await answer.read()


def content(raw: bytes) -> str:
    return str(orjson.loads(raw)["choices"][0]["message"]["content"])


async def test_answers_belong_to_their_prompts(http: aiohttp.ClientSession) -> None:
    """Fifty prompts at once get fifty matching answers; without faults nothing fails."""
    async with FakeJudge() as judge:
        got = await asyncio.gather(*(chat(http, judge, f"p{i}") for i in range(50)))
        assert [content(raw) for _, raw in got] == [f"echo:p{i}" for i in range(50)]
        assert (judge.counters.received, judge.counters.ok, judge.counters.duplicate_work) == (50, 50, 0)


async def test_the_answer_can_be_given(http: aiohttp.ClientSession) -> None:
    """A judge answers what its `answer` function makes of the request."""
    async with FakeJudge(answer=lambda body: str(len(body["messages"]))) as judge:
        assert content((await chat(http, judge))[1]) == "1"


async def test_choices_logprobs_and_echo(http: aiohttp.ClientSession) -> None:
    """`n`, `logprobs` and the echo prompts do what they say."""
    async with FakeJudge() as judge:
        answer = orjson.loads((await chat(http, judge, n=3, logprobs=True))[1])
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        assert answer["choices"][0]["logprobs"]["content"]
        assert json.loads(content((await chat(http, judge, "__echo_body__", seed=7))[1]))["seed"] == 7


async def test_a_stream_joins_to_the_same_answer(http: aiohttp.ClientSession) -> None:
    """The pieces of a stream are the answer; usage comes where asked for; [DONE] ends it."""
    async with FakeJudge(sse_tokens=3) as judge:
        _, raw = await chat(http, judge, "hello stream", stream=True, stream_options={"include_usage": True})
        events = [line[6:] for line in raw.decode().split("\n\n") if line]
        assert events[-1] == "[DONE]"
        parsed = [json.loads(event) for event in events[:-1]]
        pieces = [c["choices"][0]["delta"].get("content", "") for c in parsed if c["choices"]]
        assert "".join(pieces) == "echo:hello stream"
        assert parsed[-1]["usage"]["total_tokens"] > 0


async def test_a_script_is_followed_in_order(http: aiohttp.ClientSession) -> None:
    """Scripted steps come one per request, and then the judge is well again."""
    async with FakeJudge() as judge:
        judge.script(500, Reply(429, retry_after=2), Delay(0.001), "malformed", "ok")
        statuses = []
        for _ in range(6):
            status, raw = await chat(http, judge)
            statuses.append((status, raw.startswith(b'{"id": "chatcmpl-') and not raw.endswith(b"}")))
        ok = (200, False)
        assert statuses == [(500, False), (429, False), ok, (200, True), ok, ok]


async def test_a_reset_breaks_the_connection(http: aiohttp.ClientSession) -> None:
    """A scripted reset is a connection error, counted as one."""
    async with FakeJudge() as judge:
        judge.script("reset")
        with pytest.raises(aiohttp.ClientError):
            async with http.post(f"{judge.url}/chat/completions", json={}):
                pass
        assert judge.counters.n["reset"] == 1


async def test_a_truncated_stream_ends_in_the_middle(http: aiohttp.ClientSession) -> None:
    """A truncated stream breaks after its first piece."""
    async with FakeJudge() as judge:
        judge.script("truncated")
        with pytest.raises(aiohttp.ClientError):
            await chat(http, judge, "a long enough text", stream=True)


async def test_a_client_that_leaves_a_hanging_judge_is_counted(http: aiohttp.ClientSession) -> None:
    """A hanging request ends when its client goes, and `client_gone` says so."""
    async with FakeJudge(dead="hang") as judge:
        task = asyncio.create_task(chat(http, judge))
        while not judge.counters.n["hung"]:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while not judge.counters.client_gone:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(("mode", "header"), [("ceil", "2"), ("fixed:7", "7"), ("none", None)])
async def test_the_rate_limit_refuses_and_says_when(http: aiohttp.ClientSession, mode: str, header: str | None) -> None:
    """A bucket of one admits one request; the next gets 429 with the Retry-After that was asked for."""
    async with FakeJudge(rate=0.5, burst=1, retry_after=mode) as judge:
        assert (await chat(http, judge))[0] == 200
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with http.post(f"{judge.url}/chat/completions", json=body) as answer:
            assert (answer.status, answer.headers.get("Retry-After")) == (429, header)
        assert (judge.counters.status(429), judge.counters.ok) == (1, 1)


async def test_keys_have_limits_of_their_own(http: aiohttp.ClientSession) -> None:
    """A limit on one API key leaves the others alone."""
    async with FakeJudge(key_rates={"k": 1.0}) as judge:
        assert [(await chat(http, judge))[0] for _ in range(2)] == [200, 429]
        body = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
        async with http.post(
            f"{judge.url}/chat/completions", json=body, headers={"Authorization": "Bearer other"}
        ) as answer:
            assert answer.status == 200


async def test_tokens_per_minute_are_counted(http: aiohttp.ClientSession) -> None:
    """Once a minute's tokens are used up, requests get 429."""
    async with FakeJudge(tokens_per_min=5) as judge:
        assert [(await chat(http, judge, "x" * 40))[0] for _ in range(2)] == [200, 429]


async def test_capacity_is_a_bound_on_concurrent_work(http: aiohttp.ClientSession) -> None:
    """Above its capacity the judge answers 503 and never works on more."""
    async with FakeJudge(latency_s=0.05, capacity=2) as judge:
        got = await asyncio.gather(*(chat(http, judge, str(i)) for i in range(10)))
        assert judge.counters.max_inflight <= 2
        assert {status for status, _ in got} == {200, 503}


async def test_random_faults_follow_the_seed(http: aiohttp.ClientSession) -> None:
    """The same seed fails the same requests."""
    runs = []
    for _ in range(2):
        async with FakeJudge(p500=0.5, seed=3) as judge:
            runs.append([(await chat(http, judge, str(i)))[0] for i in range(20)])
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


async def test_embeddings_in_both_shapes(http: aiohttp.ClientSession) -> None:
    """Equal texts give equal vectors; base64 and the alternative field are there on demand."""
    async with FakeJudge(dims=4) as judge:
        async with http.post(f"{judge.url}/embeddings", json={"model": "m", "input": ["a", "a", "b"]}) as answer:
            rows = (await answer.json())["data"]
        assert rows[0]["embedding"] == rows[1]["embedding"] != rows[2]["embedding"]
        judge.faults.set(embeddings_field="embeddings")
        body = {"model": "m", "input": "a", "encoding_format": "base64"}
        async with http.post(f"{judge.url}/embeddings", json=body) as answer:
            assert isinstance((await answer.json())["embeddings"][0]["embedding"], str)


async def test_faults_change_live_through_the_admin_route(http: aiohttp.ClientSession) -> None:
    """A fault set over HTTP holds from the next request; an unknown one is refused by name."""
    async with FakeJudge() as judge:
        admin = judge.url.replace("/v1", "/admin")
        async with http.post(f"{admin}/config", json={"dead": "503"}) as answer:
            assert (await answer.json())["dead"] == "503"
        assert (await chat(http, judge))[0] == 503
        async with http.post(f"{admin}/config", json={"bogus": 1}) as answer:
            assert answer.status == 400
            assert "bogus" in await answer.text()
        async with http.get(f"{admin}/stats?window=1") as answer:
            stats = await answer.json()
        assert (stats["received"], stats["503"], stats["max_in_window"]) == (1, 1, 1)


def test_a_judge_in_a_thread_serves_synchronous_code() -> None:
    """`in_thread` serves without an event loop of the caller, and stops."""
    with FakeJudge().in_thread() as judge:
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
        request = urllib.request.Request(f"{judge.url}/chat/completions", data=body)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert content(answer.read()) == "echo:x"


def test_a_judge_in_a_process_of_its_own() -> None:
    """The module prints its URL as JSON and stops by itself on SIGTERM."""
    process = subprocess.Popen(
        [sys.executable, "-m", "qreward.testing.judge", "--latency-s", "0.001"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(f"{url}/models", timeout=10) as answer:
            assert json.loads(answer.read())["data"]
    finally:
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()  # type: ignore[union-attr]
