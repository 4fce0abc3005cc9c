"""The text in a stream of chat completion chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable
from typing import Any

import openai
import orjson

from qreward.client.errors import httpx_of_openai
from qreward.client.wire import DONE


async def texts(events: AsyncGenerator[bytes, None]) -> AsyncGenerator[str, None]:
    """The deltas of the first choice, from `Wire.events`.

    Raises openai.APIConnectionError when the stream ends without ``[DONE]`` and without a finish reason: the answer is
    cut off.
    """
    finished = False
    try:
        async for data in events:
            if data == DONE:
                finished = True
                continue
            choice = _first_choice(_decoded(data))
            if choice is None:
                continue
            finished = finished or choice.get("finish_reason") is not None
            delta = choice.get("delta") or choice.get("message") or {}
            content = delta.get("content")
            if content is not None:
                yield content
    finally:
        await events.aclose()
    if not finished:
        raise openai.APIConnectionError(
            message="Connection error: the stream ended before the answer was complete", request=_no_request()
        )


async def texts_of_chunks(chunks: AsyncIterable[Any]) -> AsyncGenerator[str, None]:
    """The same from the chunk objects of an openai client."""
    try:
        async for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content is not None:
                yield chunk.choices[0].delta.content
    finally:
        close = getattr(chunks, "close", None)
        if close is not None:
            await close()


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        message = f"the stream contains {data[:100].decode('utf-8', 'replace')!r}, which is not JSON"
        raise openai.APIError(message, _no_request(), body=None) from exc
    if not isinstance(chunk, dict):
        raise openai.APIError(f"the stream contains {str(chunk)[:100]!r}, not an object", _no_request(), body=chunk)
    return chunk


def _first_choice(chunk: dict[str, Any]) -> dict[str, Any] | None:
    for choice in chunk.get("choices") or ():
        if not choice.get("index"):
            first: dict[str, Any] = choice
            return first
    return None


def _no_request() -> Any:
    return httpx_of_openai().Request("POST", "http://stream.invalid")
