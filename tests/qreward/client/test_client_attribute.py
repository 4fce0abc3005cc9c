"""`proxy.client`: a real AsyncOpenAI, and the place where spies and mocks are put."""

from __future__ import annotations

from unittest.mock import AsyncMock, MagicMock

import openai
import pytest
from openai.types.chat import ChatCompletion

from qreward.testing.faults import Delay


async def test_it_is_an_openai_client(proxy, judge, hello):
    """It answers chat completions, streams, raw responses, embeddings and models like openai's own."""
    client = proxy.client
    assert isinstance(client, openai.AsyncOpenAI)
    assert (str(client.base_url), client.api_key, client.max_retries) == (judge.url + "/", "sk-secret-key", 0)
    completion = await client.chat.completions.create(messages=hello, model="m", n=2)
    assert isinstance(completion, ChatCompletion)
    assert len(completion.choices) == 2
    chunks = await client.chat.completions.create(messages=hello, model="m", stream=True)
    text = "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])
    raw = await client.chat.completions.with_raw_response.create(messages=hello, model="m")
    assert text == raw.parse().choices[0].message.content == "echo:hello"
    assert len((await client.embeddings.create(input=["a"], model="e")).data[0].embedding) == 64
    assert [m.id async for m in client.models.list()] == ["fake"]


async def test_direct_calls_are_sent_once(proxy, judge, hello):
    """A call made on it is not repeated; its errors are openai's."""
    judge.script(500)
    with pytest.raises(openai.InternalServerError):
        await proxy.client.chat.completions.create(messages=hello, model="m")
    judge.script(Delay(30))
    with pytest.raises(openai.APITimeoutError):
        await proxy.client.chat.completions.create(messages=hello, model="m", timeout=0.05)
    judge.script("reset")
    with pytest.raises(openai.APIConnectionError):
        await proxy.client.embeddings.create(input="a", model="e")
    assert judge.counters.received == 3


async def test_copies_behave_like_openais(proxy, judge, hello):
    """with_options gives a client with openai's own behaviour, retries included."""
    judge.script(500, "ok")
    copy = proxy.client.with_options(max_retries=1)
    assert (await copy.chat.completions.create(messages=hello, model="m")).choices[0].message.content == "echo:hello"
    assert judge.counters.received == 2


async def test_it_is_not_built_unless_asked_for(proxy, hello):
    """The plain path never builds it."""
    await proxy.chat_completion(hello, "m")
    await proxy.embeddings(sentences=["a"], model="e")
    assert proxy._client is None


async def test_calls_go_through_a_spy(proxy, judge, hello):
    """A wrapped create sees every attempt and its arguments, and the call still uses the limits and retries."""
    completions = proxy.client.chat.completions
    original, seen = completions.create, []

    async def spy(**arguments):
        seen.append(arguments)
        return await original(**arguments)

    completions.create = spy
    judge.script(500, "ok")
    assert await proxy.chat_completion(hello, "m", seed=3) == "echo:hello"
    assert [a["seed"] for a in seen] == [3, 3]
    assert seen[0]["messages"] == hello
    del completions.create
    await proxy.chat_completion(hello, "m")
    assert len(seen) == 2


async def test_calls_go_through_mocks(proxy, judge, hello):
    """AsyncMocks in place of create, for chat, streams and embeddings, are what the methods call."""
    completion = MagicMock(choices=[MagicMock(message=MagicMock(content="mocked"))])
    proxy.client.chat.completions.create = AsyncMock(return_value=completion)
    assert await proxy.chat_completion(hello, "m") == "mocked"

    async def chunks():
        for text in ("a", None, "b"):
            yield MagicMock(choices=[MagicMock(delta=MagicMock(content=text))])
        yield MagicMock(choices=[])

    proxy.client.chat.completions.create = AsyncMock(return_value=chunks())
    assert [p async for p in proxy.stream_chat_completion(hello, "m")] == ["a", "b"]
    proxy.client.embeddings.create = AsyncMock(return_value=MagicMock(data=["vector"]))
    assert await proxy.embeddings(sentences=["a"], model="e") == ["vector"]
    assert judge.counters.received == 0


async def test_errors_of_a_replacement(proxy, hello):
    """Errors of openai are repeated, any other ends the call."""
    answer = MagicMock(choices=[MagicMock(message=MagicMock(content="ok"))])
    request = MagicMock()
    create = proxy.client.chat.completions.create = AsyncMock(side_effect=[openai.APITimeoutError(request), answer])
    assert await proxy.chat_completion(hello, "m") == "ok"
    create.side_effect = ValueError("mine")
    with pytest.raises(ValueError, match="mine"):
        await proxy.chat_completion(hello, "m")
    assert create.await_count == 3


async def test_another_client_in_its_place(proxy, hello):
    """A client that a user puts there is used, and closed with the proxy."""
    proxy.client = MagicMock(close=AsyncMock())
    proxy.client.chat.completions.create = AsyncMock(
        return_value=MagicMock(choices=[MagicMock(message=MagicMock(content="theirs"))])
    )
    assert await proxy.chat_completion(hello, "m") == "theirs"
    await proxy.aclose()
    proxy.client.close.assert_awaited_once()


async def test_closing_twice_and_going_on(proxy, judge, hello):
    """aclose and close are idempotent; a call afterwards opens a new connection, also through `client`."""
    await proxy.client.models.list()
    await proxy.aclose()
    await proxy.close()
    assert await proxy.chat_completion(hello, "m") == "echo:hello"
    assert [m.id async for m in proxy.client.models.list()] == ["fake"]
