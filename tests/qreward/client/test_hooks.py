"""Hooks see real httpx objects, and what they change reaches the wire."""

from __future__ import annotations

import openai
import pytest

from qreward.client.errors import httpx_of_openai

ANSWER = b'{"choices": [{"message": {"content": "yes"}}]}'


def hooks(is_async: bool, seen: list[object]):
    httpx = httpx_of_openai()

    def on_request(request):
        assert isinstance(request, httpx.Request)
        seen.append(request.method)
        request.headers["x-signature"] = str(len(request.content))
        request.url = request.url.copy_with(path="/other" + request.url.path)

    def on_response(response):
        assert isinstance(response, httpx.Response)
        seen.append((response.status_code, response.request.url.path))

    async def on_request_later(request):
        on_request(request)

    async def on_response_later(response):
        on_response(response)

    return (on_request_later, on_response_later) if is_async else (on_request, on_response)


@pytest.mark.parametrize("is_async", [False, True])
async def test_hooks_change_the_request(raw, proxy_for, hello, is_async):
    """Sync and async hooks run once per attempt; a changed URL and header arrive at the server."""
    raw.answer(ANSWER)
    seen: list[object] = []
    on_request, on_response = hooks(is_async, seen)
    proxy = proxy_for(raw.url, httpx_request_hook=on_request, httpx_response_hook=on_response)
    assert await proxy.chat_completion(hello, "m") == "yes"
    assert seen == ["POST", (200, "/other/v1/chat/completions")]
    head, _, body = raw.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /other/v1/chat/completions ")
    assert raw.headers()["x-signature"] == str(len(body))
    assert raw.headers()["authorization"] == "Bearer sk-secret-key"


async def test_hooks_run_for_streams_and_embeddings(judge, proxy_for, hello):
    """Every kind of call passes them."""
    statuses: list[int] = []
    proxy = proxy_for(judge.url, httpx_response_hook=lambda response: statuses.append(response.status_code))
    assert "".join([piece async for piece in proxy.stream_chat_completion(hello, "m")]) == "echo:hello"
    await proxy.embeddings(sentences=["a"], model="e")
    judge.script(400)
    with pytest.raises(openai.BadRequestError):
        await proxy.chat_completion(hello, "m")
    assert statuses == [200, 200, 400]


async def test_a_hook_that_raises_ends_the_call(judge, proxy_for, hello):
    """Its exception travels to the caller as it is, without retries; nothing was sent."""

    async def refuse(_request):
        raise LookupError("not today")

    proxy = proxy_for(judge.url, httpx_request_hook=refuse)
    with pytest.raises(LookupError, match="not today"):
        await proxy.chat_completion(hello, "m")
    assert judge.counters.received == 0


async def test_openais_client_runs_them_too(judge, proxy_for):
    """What goes through `client` passes the same hooks, once."""
    paths: list[str] = []
    proxy = proxy_for(judge.url, httpx_request_hook=lambda request: paths.append(request.url.path))
    assert [m.id async for m in proxy.client.models.list()] == ["fake"]
    await proxy.client.chat.completions.create(messages=[{"role": "user", "content": "x"}], model="m")
    assert paths == ["/v1/models", "/v1/chat/completions"]
