"""Failures are openai's exceptions, repeated where that can help, and never tell secrets."""

from __future__ import annotations

import openai
import orjson
import pytest

from qreward.client.openai import MAX_RETRIES, OpenAIChatProxy
from qreward.policy.classify import Kind, classify
from qreward.testing.faults import Reply

FINAL = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    418: openai.APIStatusError,
    422: openai.UnprocessableEntityError,
}
REPEATED = {
    409: openai.ConflictError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    503: openai.InternalServerError,
}


@pytest.mark.parametrize("status", FINAL)
async def test_client_errors_are_final(proxy, judge, hello, status):
    """A 4xx is raised as its class after one attempt, with status, body and the server's words."""
    judge.script(status)
    with pytest.raises(FINAL[status], match="scripted failure") as caught:
        await proxy.chat_completion(hello, "m")
    error = caught.value
    assert type(error) is FINAL[status]
    assert (error.status_code, error.response.status_code, judge.counters.received) == (status, status, 1)
    assert error.body["message"] == "scripted failure"
    assert error.response.request.url.path == "/v1/chat/completions"


@pytest.mark.parametrize("status", REPEATED)
async def test_server_errors_are_repeated_five_times(proxy, judge, hello, status):
    """MAX_RETRIES attempts are made, then the last error is raised."""
    judge.script(*[status] * MAX_RETRIES)
    with pytest.raises(REPEATED[status]):
        await proxy.chat_completion(hello, "m", deadline_s=30)
    assert judge.counters.received == MAX_RETRIES == 5


@pytest.mark.parametrize("fault", ["reset", "malformed", 500, 429])
async def test_one_failure_costs_one_more_attempt(proxy, judge, hello, fault):
    """A reset, a malformed answer, a 500 and a 429 are followed by a second attempt that answers."""
    judge.script(fault, "ok")
    assert await proxy.chat_completion(hello, "m") == "echo:hello"
    assert judge.counters.received == 2


async def test_retry_after_is_obeyed(proxy, judge, hello):
    """The second attempt comes no earlier than the server asked for; the error carries the seconds."""
    judge.script(Reply(429, retry_after=0.3), "ok")
    await proxy.chat_completion(hello, "m")
    first, second = judge.counters.arrived_at
    assert second - first >= 0.3
    judge.script(Reply(400, retry_after=7))
    with pytest.raises(openai.BadRequestError) as caught:
        await proxy.chat_completion(hello, "m")
    assert caught.value.retry_after == 7


async def test_connection_refused(unused_tcp_port, proxy_for, hello):
    """Nobody listens: APIConnectionError with the address, known not to have been sent."""
    proxy = proxy_for(f"http://127.0.0.1:{unused_tcp_port}/v1")
    with pytest.raises(openai.APIConnectionError, match=f"127.0.0.1:{unused_tcp_port}") as caught:
        await proxy.chat_completion(hello, "m")
    assert not isinstance(caught.value, openai.APITimeoutError)
    assert classify(caught.value).unsent


BAD_ANSWERS = {
    b"": "not JSON",
    b"<html>busy</html>": "busy",
    b"[]": "not a JSON object|choices",
    b'{"choices": []}': "choices",
    b'{"choices": [{"text": "x"}]}': "choices",
}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("body", BAD_ANSWERS)
async def test_malformed_answers(raw, proxy_for, hello, body, whole):
    """A 200 without an answer is an APIResponseValidationError that shows its beginning, and is repeated."""
    raw.answer(body)
    with pytest.raises(openai.APIResponseValidationError, match=BAD_ANSWERS[body]) as caught:
        await proxy_for(raw.url).chat_completion(hello, "m", return_completion=whole)
    assert classify(caught.value).kind is Kind.TRANSIENT
    assert len(raw.requests) == MAX_RETRIES


async def test_an_error_inside_a_200(raw, proxy_for, hello):
    """A gateway's 200 with an error and its status inside is that error."""
    raw.answer(b'{"error": {"message": "no such model", "code": 404}}')
    with pytest.raises(openai.NotFoundError, match="no such model"):
        await proxy_for(raw.url).chat_completion(hello, "m")
    assert len(raw.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "too long"}},
        {"error": "too long"},
        {"message": "too long"},
        {"detail": "too long"},
        {"detail": [{"msg": "too long"}]},
    ],
)
async def test_the_words_of_many_servers(proxy, judge, hello, body):
    """The message is found in the shapes of OpenAI, vLLM, FastAPI and gateways."""
    judge.script(Reply(400, body=orjson.dumps(body)))
    with pytest.raises(openai.BadRequestError, match="too long"):
        await proxy.chat_completion(hello, "m")


async def test_messages_are_bounded(proxy, judge, hello):
    """A huge error page does not become a huge message."""
    judge.script(Reply(400, body=b"x" * 1_000_000))
    with pytest.raises(openai.BadRequestError) as caught:
        await proxy.chat_completion(hello, "m")
    assert len(str(caught.value)) < 2_000
    assert len(caught.value.response.content) <= 65_536


async def test_a_server_that_repeats_the_key(proxy, judge, hello):
    """The key appears neither in the message nor in the body nor in the response of an error."""
    judge.script(Reply(401, body=b'{"error": {"message": "Incorrect API key: sk-secret-key"}}'))
    with pytest.raises(openai.AuthenticationError, match="Incorrect API key") as caught:
        await proxy.chat_completion(hello, "m")
    error = caught.value
    seen = f"{error} {error!r} {error.body} {error.response.text} {error.request.headers}"
    assert "sk-secret-key" not in seen


async def test_responses_are_bounded(judge, proxy_for, hello):
    """A response above max_response_bytes is refused, not read into memory."""
    proxy = proxy_for(judge.url, max_response_bytes=1_000)
    messages = [{"role": "user", "content": "x" * 5_000}]
    with pytest.raises(openai.APIConnectionError, match="larger than 1000 bytes"):
        await proxy.chat_completion(messages, "m")


async def test_compressed_answers(raw, proxy_for, hello):
    """A gzip body is read, and its size counts after decompression."""
    import gzip

    body = orjson.dumps({"choices": [{"message": {"content": "z" * 5_000}}]})
    raw.answer(gzip.compress(body), "Content-Encoding: gzip")
    assert await proxy_for(raw.url).chat_completion(hello, "m") == "z" * 5_000
    with pytest.raises(openai.APIConnectionError, match="larger than"):
        await proxy_for(raw.url, max_response_bytes=1_000).chat_completion(hello, "m")


def test_everything_is_an_openai_error():
    """What 0.1.7's users catch covers what is raised here."""
    for kind in (*FINAL.values(), *REPEATED.values(), openai.APITimeoutError, openai.APIResponseValidationError):
        assert issubclass(kind, openai.APIError)
    assert OpenAIChatProxy.__init__.__kwdefaults__["verify_ssl"] is True
