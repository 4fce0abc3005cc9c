"""`stream_chat_completion`: pieces as they come, failures that are seen, connections that end."""

from __future__ import annotations

import asyncio
import contextlib
import logging

import openai
import orjson
import pytest

from qreward.errors import DeadlineExceeded
from qreward.testing.faults import Delay


def event(text: str | None, finish: str | None = None, index: int = 0) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"


async def collect(stream) -> list[str]:
    return [piece async for piece in stream]


async def collect_into(seen: list[str], stream) -> None:
    async for piece in stream:
        seen.append(piece)  # noqa: PERF401 - what came before a failure stays


async def test_pieces_arrive_one_by_one(proxy, judge, hello):
    """The answer comes in pieces, and the arguments of the call reach the wire."""
    pieces = await collect(proxy.stream_chat_completion(hello, "m", max_tokens=5))
    assert "".join(pieces) == "echo:hello"
    assert len(pieces) > 3
    body = judge.counters.arrivals[0].body
    assert (body["stream"], body["max_tokens"], body["temperature"]) == (True, 5, 0.0)


async def test_the_connection_is_used_again(proxy, judge, hello):
    """A stream that was read to its end leaves its connection for the next call."""
    for _ in range(3):
        await collect(proxy.stream_chat_completion(hello, "m"))
        await proxy.chat_completion(hello, "m")
    assert len(judge.counters.connections) == 1


async def test_an_end_that_comes_late(raw, proxy_for, hello):
    """The connection is used again also where the end of the body comes some time after [DONE]."""
    events = [event("a"), b"data: [DONE]\n\n"]
    chunks = [b"%x\r\n%b\r\n" % (len(data), data) for data in events]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw.pieces = [head, *chunks, b"0\r\n\r\n"]
    raw.pause_s, raw.keep_alive = 0.01, True
    proxy = proxy_for(raw.url)
    for _ in range(2):
        assert await collect(proxy.stream_chat_completion(hello, "m")) == ["a"]
    assert (len(raw.requests), raw.connections) == (2, 1)


async def test_stopping_early_closes_the_connection(raw, proxy_for, hello):
    """When the consumer stops, the server sees the connection close, and the slot is free."""
    raw.stream(event("a"), event("b"))
    raw.hold = True
    proxy = proxy_for(raw.url)
    async with contextlib.aclosing(proxy.stream_chat_completion(hello, "m")) as stream:
        async for piece in stream:
            assert piece == "a"
            assert proxy._gate.inflight == 1
            break
    await asyncio.wait_for(raw.gone.wait(), 10)
    assert proxy._gate.inflight == 0


async def test_odd_but_legal_streams(raw, proxy_for, hello):
    """Comments, CRLF, data in several lines, empty choices, a usage chunk and other choices are understood."""
    raw.stream(
        b": ping\r\n\r\n",
        b'data: {"choices": [{"index": 0,\r\ndata: "delta": {"content": "a"}}]}\r\n\r\n',
        event("other", index=1),
        b'data: {"choices": []}\n\n',
        event(None, "stop"),
        b'data: {"usage": {}}\n\n',
        b"data: [DONE]\n\n",
    )
    assert await collect(proxy_for(raw.url).stream_chat_completion(hello, "m")) == ["a"]


async def test_the_end_without_done(raw, proxy_for, hello):
    """A finish reason is an end too, for servers without [DONE]; without either the answer is cut off."""
    raw.stream(event("a"), event(None, "stop"))
    assert await collect(proxy_for(raw.url).stream_chat_completion(hello, "m")) == ["a"]
    raw.stream(event("a"))
    with pytest.raises(openai.APIConnectionError, match="before the answer was complete"):
        await collect(proxy_for(raw.url).stream_chat_completion(hello, "m"))


async def test_an_error_event(raw, proxy_for, hello):
    """An error in the middle of a stream is raised with the server's words, after the pieces before it."""
    raw.stream(event("a"), b'data: {"error": {"message": "out of memory at sk-secret-key"}}\n\n')
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="out of memory at") as caught:
        await collect_into(seen, proxy_for(raw.url).stream_chat_completion(hello, "m"))
    assert seen == ["a"]
    assert "sk-secret-key" not in f"{caught.value} {caught.value.body}"


async def test_a_server_that_does_not_stream(raw, proxy_for, hello):
    """A plain JSON answer is one piece."""
    raw.answer(b'{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}')
    assert await collect(proxy_for(raw.url).stream_chat_completion(hello, "m")) == ["whole"]


async def test_garbage_in_a_stream(raw, proxy_for, hello):
    """Data that is not JSON is an error that shows it."""
    raw.stream(b"data: <html>\n\n")
    with pytest.raises(openai.APIError, match="<html>"):
        await collect(proxy_for(raw.url).stream_chat_completion(hello, "m"))


async def test_retries_before_the_first_piece(proxy, judge, hello):
    """A refusal is followed by another attempt; a 4xx is final."""
    judge.script(503, "reset", "ok")
    assert "".join(await collect(proxy.stream_chat_completion(hello, "m"))) == "echo:hello"
    assert judge.counters.received == 3
    judge.script(400)
    with pytest.raises(openai.BadRequestError):
        await collect(proxy.stream_chat_completion(hello, "m"))
    assert judge.counters.received == 4


async def test_no_retry_after_the_first_piece(proxy, judge, hello):
    """What was already given cannot be taken back: a later failure is raised."""
    judge.script("truncated")
    seen: list[str] = []
    with pytest.raises(openai.APIConnectionError):
        await collect_into(seen, proxy.stream_chat_completion(hello, "m"))
    assert len(seen) >= 1
    assert judge.counters.received == 1


async def test_timeout_is_the_silence(raw, proxy_for, hello):
    """A stream that goes on may take longer than *timeout*; one that falls silent may not."""
    raw.stream(*[event(str(i)) for i in range(8)], b"data: [DONE]\n\n")
    raw.pause_s = 0.03
    assert len(await collect(proxy_for(raw.url).stream_chat_completion(hello, "m", timeout=0.15))) == 8
    raw.pieces.pop()
    raw.hold = True
    with pytest.raises(openai.APITimeoutError, match=r"0\.15 s"):
        await collect(proxy_for(raw.url).stream_chat_completion(hello, "m", timeout=0.15))


async def test_deadline(proxy, judge, hello):
    """deadline_s bounds the whole stream."""
    judge.script(Delay(30))
    with pytest.raises(DeadlineExceeded, match=r"0\.05 s"):
        await collect(proxy.stream_chat_completion(hello, "m", deadline_s=0.05))


async def test_debug(judge, proxy_for, hello, caplog):
    """debug=True logs the model."""
    with caplog.at_level(logging.DEBUG, logger="qreward.client.openai"):
        await collect(proxy_for(judge.url, debug=True).stream_chat_completion(hello, "judge-model"))
    assert "Stream model judge-model" in caplog.text
