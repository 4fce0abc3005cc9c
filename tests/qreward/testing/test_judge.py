"""FakeJudge: it speaks the protocol, counts what comes, and starts and stops at will."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request

import aiohttp
import pytest

from qreward.testing import Delay, FakeJudge, Reply


async def test_answers_belong_to_their_prompts(client):
    """Fifty prompts at once get fifty matching answers; without faults nothing fails."""
    async with FakeJudge() as judge:
        got = await asyncio.gather(*(client.chat(judge, f"p{i}") for i in range(50)))
        assert [answer.text for answer in got] == [f"echo:p{i}" for i in range(50)]
        assert (judge.counters.received, judge.counters.ok, judge.counters.duplicate_work) == (50, 50, 0)


async def test_the_answer_can_be_given(client):
    """A judge answers what its `answer` function makes of the request; what that raises is a 500 that says so."""
    async with FakeJudge(answer=lambda body: str(10 // len(body["messages"][0]["content"]))) as judge:
        assert (await client.chat(judge, "xx")).text == "5"
        failed = await client.chat(judge, "")
        assert (failed.status, "ZeroDivisionError" in failed.json["error"]["message"]) == (500, True)


async def test_choices_logprobs_and_echo(client):
    """`n`, `logprobs` and the echo prompts do what they say."""
    async with FakeJudge() as judge:
        answer = (await client.chat(judge, n=3, logprobs=True)).json
        assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
        assert answer["choices"][0]["logprobs"]["content"]
        assert (await client.chat(judge)).json["choices"][0]["logprobs"] is None
        assert json.loads((await client.chat(judge, "__echo_body__", seed=7)).text)["seed"] == 7
        assert json.loads((await client.chat(judge, "__echo_headers__")).text)["X-Trace"] == "t"


async def test_a_stream_joins_to_the_same_answer(client):
    """The pieces of a stream are the answer; usage comes where asked for; [DONE] ends it."""
    async with FakeJudge(sse_tokens=3) as judge:
        told = await client.chat(judge, "hello stream", stream=True, stream_options={"include_usage": True})
        assert told.events[-1] == "[DONE]"
        parsed = [json.loads(event) for event in told.events[:-1]]
        pieces = [c["choices"][0]["delta"].get("content", "") for c in parsed if c["choices"]]
        assert ("".join(pieces), len([piece for piece in pieces if piece])) == ("echo:hello stream", 3)
        assert parsed[-1]["usage"]["total_tokens"] > 0
        quiet = await client.chat(judge, "hello stream", stream=True)
        assert not any("usage" in json.loads(event) for event in quiet.events[:-1])


async def test_embeddings_in_both_shapes(client):
    """Equal texts give equal vectors of the size asked for; base64 and the alternative field are there on demand."""
    async with FakeJudge(dims=4) as judge:
        rows = (await client.post(judge, "/embeddings", {"input": ["a", "a", "b"], "dimensions": 3})).json["data"]
        assert rows[0]["embedding"] == rows[1]["embedding"] != rows[2]["embedding"]
        assert [len(row["embedding"]) for row in rows] == [3, 3, 3]
        judge.faults.set(embeddings_field="embeddings")
        other = (await client.post(judge, "/embeddings", {"input": "a", "encoding_format": "base64"})).json
        assert isinstance(other["embeddings"][0]["embedding"], str)


async def test_models_and_unknown_routes(client):
    """The models are listed, a dead endpoint does not even do that, and another route is a 404."""
    async with FakeJudge() as judge:
        assert (await client.get(judge, "/models")).json["data"][0]["id"] == "fake"
        assert (await client.get(judge, "/nothing")).status == 404
        judge.faults.set(dead="503")
        assert (await client.get(judge, "/models")).status == 503


@pytest.mark.parametrize(
    ("path", "body", "complaint"),
    [
        ("/chat/completions", b"no json", "JSON object"),
        ("/chat/completions", [1], "JSON object"),
        ("/chat/completions", {"messages": []}, "messages"),
        ("/chat/completions", {"messages": [{"content": "x"}], "n": "two"}, "'two'"),
        ("/chat/completions", {"messages": [{"content": "x"}], "model": "bad"}, "'bad'"),
        ("/embeddings", {"input": []}, "input"),
        ("/embeddings", {"input": "x", "dimensions": 0}, "dimensions"),
    ],
)
async def test_a_bad_request_is_refused_with_its_reason(client, path, body, complaint):
    """What no server could answer is a 400 that names the fault, and counted as one."""
    async with FakeJudge() as judge:
        answer = await client.post(judge, path, body)
        assert (answer.status, complaint in answer.json["error"]["message"]) == (400, True)
        assert (judge.counters.status(400), judge.counters.ok) == (1, 0)


async def test_arrivals_show_everything_but_credentials(client):
    """Every request is remembered, also a refused one: text, path, body and headers, the key masked."""
    async with FakeJudge() as judge:
        judge.script(500, "reset", Reply(429))
        await client.chat(judge, "first", key="sk-secret")
        with pytest.raises(aiohttp.ClientError):
            await client.chat(judge, "second")
        await client.post(judge, "/embeddings?x=1", {"input": ["a", "b"]})
        await client.chat(judge, "fourth")
        seen = judge.counters.arrivals
        assert [arrival.text for arrival in seen] == ["first", "second", "a\nb", "fourth"]
        assert (seen[2].path, seen[0].body["model"]) == ("/v1/embeddings?x=1", "m")
        assert (seen[0].headers["authorization"], seen[0].headers["x-trace"]) == ("***", "t")
        assert sorted(seen, key=lambda arrival: arrival.at) == seen


async def test_only_repeated_work_is_duplicate(client, until):
    """Two answers to one prompt are duplicate work; asking again after a refusal is not."""
    async with FakeJudge() as judge:
        judge.script(503, "ok")
        await client.chat(judge)
        await client.chat(judge)
        assert judge.counters.duplicate_work == 0
        await client.chat(judge)
        assert judge.counters.duplicate_work == 1


async def test_connections_are_counted_once(client):
    """Calls one after another share a connection; calls at once need one each."""
    async with FakeJudge() as judge:
        for _ in range(3):
            await client.chat(judge)
        assert len(judge.counters.connections) == 1
        judge.script(*[Delay(0.05)] * 3)
        await asyncio.gather(*(client.chat(judge) for _ in range(3)))
        assert len(judge.counters.connections) == 3


async def test_reset_forgets_all_but_the_faults(client):
    """After a reset over HTTP nothing is counted, scripted or used up."""
    async with FakeJudge(rate=0.001) as judge:
        judge.script("ok", 500)
        assert [(await client.chat(judge)).status for _ in range(4)] == [200, 500, 200, 429]
        judge.script(500)
        await client.admin(judge, "reset")
        assert (judge.counters.received, judge.counters.arrivals) == (0, [])
        assert [(await client.chat(judge)).status for _ in range(2)] == [200, 429]


async def test_a_judge_can_die_and_come_back(client):
    """A stopped judge refuses connections; started again it is at the same address, with its counts."""
    judge = FakeJudge()
    async with judge:
        await client.chat(judge)
        url = judge.url
    with pytest.raises(aiohttp.ClientConnectorError):
        await client.chat(judge)
    async with judge:
        assert (await client.chat(judge)).text == "echo:hi"
        assert (judge.url, judge.counters.received) == (url, 2)
        with pytest.raises(RuntimeError, match="runs already"):
            await judge.start()


async def test_stopping_cuts_off_who_waits(client, until):
    """A judge stops at once whatever hangs; clients that it cut off did not go."""
    async with FakeJudge(latency_s=1000) as judge:
        judge.script("hang")
        waiting = [asyncio.create_task(client.chat(judge)) for _ in range(3)]
        await until(lambda: judge.counters.n["hung"] + judge.counters.inflight == 3)
    cut = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, aiohttp.ClientConnectionError) for error in cut)
    assert judge.counters.client_gone == 0


def test_a_judge_in_a_thread_serves_synchronous_code():
    """`in_thread` serves without an event loop of the caller, and stops."""
    with FakeJudge().in_thread() as judge:
        body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
        request = urllib.request.Request(f"{judge.url}/chat/completions", data=body)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert json.loads(answer.read())["choices"][0]["message"]["content"] == "echo:x"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(request, timeout=10)


_MODULE = [sys.executable, "-m", "qreward.testing.judge"]


def test_a_judge_in_a_process_of_its_own():
    """The module prints its URL as JSON and stops by itself on SIGTERM."""
    with subprocess.Popen([*_MODULE, "--latency-s", "0.001"], stdout=subprocess.PIPE, text=True) as process:
        url = json.loads(process.stdout.readline())["url"]
        with urllib.request.urlopen(f"{url}/models", timeout=10) as answer:
            assert json.loads(answer.read())["data"]
        process.terminate()
        assert process.wait(10) == 0


def test_a_wrong_option_is_an_error_of_the_command_line():
    """A fault that cannot be ends the command with 2 and the reason."""
    ended = subprocess.run([*_MODULE, "--dead", "maybe"], capture_output=True, text=True, check=False)
    assert (ended.returncode, "one of no, reset, hang, 503, 500, not 'maybe'" in ended.stderr) == (2, True)
