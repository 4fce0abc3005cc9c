"""`batch_stream_chat_completion`: merged streams with backpressure, and no failure that vanishes."""

from __future__ import annotations

import asyncio
import contextlib

import openai
import pytest

from qreward.errors import BatchError
from qreward.testing import eventually


def prompts(n: int) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": f"prompt {i}"}] for i in range(n)]


async def join(stream, joined: list[str]) -> None:
    async for index, piece in stream:
        joined[index] += piece


async def texts(stream, n: int) -> list[str]:
    joined = [""] * n
    await join(stream, joined)
    return joined


async def test_all_pieces_with_their_index(proxy, judge):
    """Every stream is complete, and several run at once."""
    judge.faults.set(sse_gap_s=0.002)
    assert await texts(proxy.batch_stream_chat_completion(prompts(9), "m"), 9) == [f"echo:prompt {i}" for i in range(9)]
    assert judge.counters.max_inflight > 1


async def test_max_concurrent_streams(proxy, judge):
    """No more streams than asked for run at once."""
    judge.faults.set(sse_gap_s=0.002)
    stream = proxy.batch_stream_chat_completion(prompts(9), "m", max_concurrent_streams=2)
    assert await texts(stream, 9) == [f"echo:prompt {i}" for i in range(9)]
    assert judge.counters.max_inflight == 2


async def test_failures_are_reported_at_once(proxy, judge):
    """on_stream_error, sync or async, gets the index and the exception; the others go on."""
    judge.script(400, "ok", 404)
    failures = []

    async def note(index: int, exc: BaseException) -> None:
        failures.append((index, type(exc)))

    stream = proxy.batch_stream_chat_completion(prompts(3), "m", 1, note)
    assert await texts(stream, 3) == ["", "echo:prompt 1", ""]
    assert failures == [(0, openai.BadRequestError), (2, openai.NotFoundError)]


async def test_failures_without_a_callback_are_raised_at_the_end(proxy, judge):
    """BatchError comes after the last piece, with the exceptions at their places."""
    judge.script(400, "ok")
    joined = ["", ""]
    stream = proxy.batch_stream_chat_completion(prompts(2), "m", max_concurrent_streams=1)
    with pytest.raises(BatchError, match="1 of 2 entries failed") as caught:
        await join(stream, joined)
    assert joined[1] == "echo:prompt 1"
    assert isinstance(caught.value.results[0], openai.BadRequestError)
    assert caught.value.results[1] is None


async def test_stopping_cancels_everything(proxy, judge):
    """When the consumer stops, the server sees all streams end, and no task is left."""
    judge.faults.set(sse_gap_s=30)
    async with contextlib.aclosing(proxy.batch_stream_chat_completion(prompts(5), "m")) as stream:
        async for _ in stream:
            if judge.counters.inflight == 5:
                break
    await eventually(lambda: judge.counters.client_gone >= 5)
    assert proxy._gate.inflight == 0


async def test_a_slow_consumer_slows_the_streams(proxy):
    """Streams are read only a few pieces ahead."""
    produced = 0

    async def endless(messages, model, **kwargs):
        nonlocal produced
        while True:
            produced += 1
            yield "x"
            await asyncio.sleep(0)

    proxy.stream_chat_completion = endless
    async with contextlib.aclosing(proxy.batch_stream_chat_completion(prompts(2), "m")) as stream:
        await anext(stream)
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert produced <= 16


async def test_an_empty_batch(proxy):
    """No entries, no pieces."""
    assert await texts(proxy.batch_stream_chat_completion([], "m"), 0) == []
