"""`chat_completion`: what reaches the server and what comes back."""

from __future__ import annotations

import asyncio
import json
import logging

import openai
import orjson
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from qreward.client.openai import MAX_RETRIES, OpenAIChatProxy
from qreward.errors import ConfigError, DeadlineExceeded
from qreward.testing.faults import Delay, Reply


async def test_returns_the_text(proxy, judge, hello):
    """The answer is a str, and one request was made for it."""
    assert await proxy.chat_completion(hello, "m") == "echo:hello"
    assert judge.counters.received == 1


async def test_every_argument_reaches_the_wire(proxy):
    """OpenAI's arguments, unknown ones and extra_body arrive in the body, and nothing else does."""
    arguments = {
        "max_tokens": 7,
        "seed": 3,
        "response_format": {"type": "json_object"},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
        "logprobs": True,
        "n": 2,
        "stop": ["\n"],
        "top_k": 5,
    }
    messages = [{"role": "user", "content": "__echo_body__"}]
    text = await proxy.chat_completion(messages, "judge-1", extra_body={"guided": 1, "seed": 4}, timeout=9, **arguments)
    wanted = {"messages": messages, "model": "judge-1", "temperature": 0.0, **arguments, "guided": 1, "seed": 4}
    assert json.loads(text) == wanted


ANSWER = b'{"choices": [{"message": {"content": "yes"}}]}'


async def test_extra_headers_and_query_reach_the_wire(raw, proxy_for, hello):
    """extra_headers are added to or replace the prepared ones, None removes one; extra_query is in the URL."""
    raw.answer(ANSWER)
    headers = {"X-Trace": "7", "Authorization": "Bearer other", "User-Agent": None}
    query = {"v": "2", "tag": ["a", "b"]}
    await proxy_for(raw.url).chat_completion(hello, "m", extra_headers=headers, extra_query=query)
    seen = raw.headers()
    assert (seen["x-trace"], seen["authorization"]) == ("7", "Bearer other")
    assert not seen.get("user-agent", "").startswith("qreward")
    assert raw.requests[0].startswith(b"POST /v1/chat/completions?v=2&tag=a&tag=b HTTP/1.1")


async def test_key_and_agent_are_sent(raw, proxy_for, hello):
    """The key goes into the Authorization header; default_headers go along with every request."""
    raw.answer(ANSWER)
    await proxy_for(raw.url, default_headers={"X-Team": "rl"}).chat_completion(hello, "m")
    seen = raw.headers()
    assert (seen["authorization"], seen["x-team"]) == ("Bearer sk-secret-key", "rl")
    assert seen["user-agent"].startswith("qreward/")


async def test_organisation_from_the_environment(raw, proxy_for, hello, monkeypatch):
    """OPENAI_ORG_ID and OPENAI_API_KEY are used as openai's own client uses them."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
    raw.answer(ANSWER)
    await proxy_for(raw.url, api_key=None).chat_completion(hello, "m")
    assert (raw.headers()["openai-organization"], raw.headers()["authorization"]) == ("org-1", "Bearer sk-env")


async def test_temperature_and_values_left_out(proxy):
    """with_temperature is the default, None and NOT_GIVEN are not sent."""
    echo = [{"role": "user", "content": "__echo_body__"}]
    proxy.with_temperature(0.7)
    assert json.loads(await proxy.chat_completion(echo, "m"))["temperature"] == 0.7
    assert json.loads(await proxy.chat_completion(echo, "m", temperature=0.1))["temperature"] == 0.1
    body = json.loads(await proxy.chat_completion(echo, "m", temperature=None, seed=openai.NOT_GIVEN))
    assert set(body) == {"messages", "model"}


async def test_bodies_that_orjson_does_not_take(proxy):
    """openai's message objects, generators, huge integers and odd keys are sent."""
    echo = {"role": "user", "content": "__echo_body__"}
    messages = [ChatCompletionMessage(role="assistant", content="hi"), echo]
    body = json.loads(await proxy.chat_completion((m for m in messages), "m", logit_bias={50256: -100}, seed=2**70))
    assert body["messages"][0] == {"role": "assistant", "content": "hi"}
    assert body["logit_bias"] == {"50256": -100}
    assert body["seed"] == 2**70


async def test_a_value_that_is_not_json_is_said_at_once(proxy, judge, hello):
    """A TypeError names the value, and nothing was sent."""
    with pytest.raises(TypeError, match="object"):
        await proxy.chat_completion(hello, "m", metadata=object())
    assert judge.counters.received == 0


async def test_return_completion(proxy, hello):
    """return_completion=True gives the ChatCompletion with all choices, logprobs and usage."""
    completion = await proxy.chat_completion(hello, "m", n=2, logprobs=True, return_completion=True)
    assert isinstance(completion, ChatCompletion)
    assert [c.message.content for c in completion.choices] == ["echo:hello", "echo:hello"]
    assert completion.choices[0].logprobs.content[0].token
    assert completion.usage.total_tokens > 0


async def test_stream_true_collects(proxy, judge, hello):
    """stream=True streams on the wire and returns the whole text."""
    assert await proxy.chat_completion(hello, "m", stream=True) == "echo:hello"
    assert judge.counters.arrivals[0].body["stream"] is True


async def test_a_collected_stream_that_breaks_is_repeated(proxy, judge, hello):
    """A stream that is cut off in the middle is asked for again as a whole."""
    judge.script("truncated", "ok")
    assert await proxy.chat_completion(hello, "m", stream=True) == "echo:hello"
    assert judge.counters.received == 2


@pytest.mark.parametrize("is_async", [False, True])
async def test_chat_process_func(judge, proxy_for, hello, is_async):
    """It gets the ChatCompletion, and what it returns is used in its place; it may be async."""

    def shout(completion: ChatCompletion) -> ChatCompletion:
        completion.choices[0].message.content = completion.choices[0].message.content.upper()
        return completion

    async def shout_later(completion: ChatCompletion) -> ChatCompletion:
        return shout(completion)

    proxy = proxy_for(judge.url, chat_process_func=shout_later if is_async else shout)
    assert await proxy.chat_completion(hello, "m") == "ECHO:HELLO"


async def test_an_answer_without_text(raw, proxy_for, hello):
    """Tool calls alone give None, as a str | None."""
    raw.answer(b'{"choices":[{"message":{"role":"assistant","tool_calls":[]}}]}')
    assert await proxy_for(raw.url).chat_completion(hello, "m") is None


async def test_answers_that_break_the_schema_are_kept(raw, proxy_for, hello):
    """Unknown enum values and missing fields do not lose the answer."""
    raw.answer(orjson.dumps({"choices": [{"message": {"content": "x"}, "finish_reason": "odd"}], "took": 1}))
    completion = await proxy_for(raw.url).chat_completion(hello, "m", return_completion=True)
    assert (completion.choices[0].message.content, completion.choices[0].finish_reason) == ("x", "odd")
    assert completion.took == 1


async def test_timeout_is_per_attempt_and_repeated(proxy, judge, hello):
    """An attempt that takes too long is an APITimeoutError, which is repeated; the server sees the disconnect."""
    judge.script(Delay(30), "ok")
    assert await proxy.chat_completion(hello, "m", timeout=0.1) == "echo:hello"
    assert judge.counters.received == 2
    await asyncio.sleep(0)
    assert judge.counters.client_gone == 1


async def test_timeout_names_the_seconds(proxy, judge, hello):
    """After the last attempt the APITimeoutError says how long was waited; with_timeout sets the default."""
    judge.script(*[Delay(30)] * MAX_RETRIES)
    proxy.with_timeout(0.02)
    with pytest.raises(openai.APITimeoutError, match=r"within 0\.02 s"):
        await proxy.chat_completion(hello, "m")
    assert judge.counters.received == MAX_RETRIES


async def test_deadline_covers_everything(proxy, judge, hello):
    """deadline_s ends the call whatever the retries would do, and says what happened."""
    judge.script(Reply(503, retry_after=60), "ok")
    with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s.*InternalServerError"):
        await proxy.chat_completion(hello, "m", deadline_s=0.2)
    assert judge.counters.received == 1


async def test_debug_logs_begin_and_end(judge, proxy_for, hello, caplog):
    """debug=True logs both ends of a call with the model, on the logger of QReward 0.1.7."""
    with caplog.at_level(logging.DEBUG, logger="qreward.client.openai"):
        await proxy_for(judge.url, debug=True).chat_completion(hello, "judge-model")
    messages = [r.getMessage() for r in caplog.records if r.name == "qreward.client.openai"]
    assert [m.split()[0] for m in messages] == ["Begin", "End"]
    assert all("judge-model" in m for m in messages)


def test_repr_shows_no_secrets():
    """Neither the key nor credentials in the URL are shown."""
    proxy = OpenAIChatProxy("https://bob:hunter2@host/v1?token=abc", api_key="sk-secret-key")
    shown = repr(proxy) + proxy.endpoint_name
    assert "https://host/v1" in shown
    assert not any(secret in shown for secret in ("hunter2", "sk-secret-key", "abc", "bob"))


@pytest.mark.parametrize("url", ["host:8000/v1", "ftp://host/v1", "http://"])
async def test_bad_base_url(url, hello):
    """A base_url that cannot work is a ConfigError that shows it, at the first call."""
    async with OpenAIChatProxy(url, api_key="k") as proxy:
        with pytest.raises(ConfigError, match="base_url"):
            await proxy.chat_completion(hello, "m")


def test_old_spellings_warn():
    """The *_fuc parameters work, warn, and lose against the *_func ones."""
    with pytest.warns(DeprecationWarning, match="chat_process_fuc"):
        proxy = OpenAIChatProxy("http://h/v1", api_key="k", chat_process_fuc=str, chat_process_func=repr)
    assert proxy._default_chat_process_func is repr
    with pytest.warns(DeprecationWarning, match="with_error_process_fuc"):
        assert proxy.with_error_process_fuc(str) is proxy
    assert proxy._default_error_process_func is str
