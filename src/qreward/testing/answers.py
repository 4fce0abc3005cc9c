"""The bodies that an OpenAI-compatible judge answers with: pure functions of the request."""

from __future__ import annotations

import base64
import math
import random
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import orjson

JSON = dict[str, Any]
_CHOICES_AT_MOST = 128


class BadRequest(ValueError):
    """A request that an OpenAI-compatible server answers with 400."""


def last_text(body: JSON) -> str:
    """The text of the last message, whatever shape its content has."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        return ""
    content = messages[-1].get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def prompt_text(body: JSON) -> str:
    """The text that a request is about: of its last message, or what it wants embedded."""
    given = body.get("input")
    if "messages" in body or given is None:
        return last_text(body)
    return given if isinstance(given, str) else "\n".join(map(str, given)) if isinstance(given, list) else ""


def check_chat(body: JSON) -> None:
    """BadRequest when *body* asks for no chat answer, or for the model ``bad``."""
    if body.get("model") == "bad":
        raise BadRequest("the model 'bad' does not exist")
    if not isinstance(body.get("messages"), list) or not body["messages"]:
        raise BadRequest("messages must be a non-empty list")
    _whole(body, "n", _CHOICES_AT_MOST)


def check_embeddings(body: JSON) -> None:
    """BadRequest when *body* asks for no vectors."""
    if not body.get("input") or not isinstance(body["input"], str | list):
        raise BadRequest("input must be a string or a non-empty list")
    _whole(body, "dimensions", 1 << 16)


def _whole(body: JSON, name: str, at_most: int) -> None:
    value = body.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= at_most:
        raise BadRequest(f"{name} must be a whole number from 1 to {at_most}, not {value!r}")


def usage(prompt: str, answer: str) -> JSON:
    """Token counts, one token per four characters."""
    tokens = max(1, len(prompt) // 4), max(1, len(answer) // 4)
    return {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}


def completion(body: JSON, answer: str) -> JSON:
    """A chat.completion with `n` choices and log-probabilities where asked for."""
    choice: JSON = {
        "finish_reason": "stop",
        "logprobs": _logprobs(answer) if body.get("logprobs") else None,
        "message": {"role": "assistant", "content": answer},
    }
    return {
        **_head(body, "chat.completion"),
        "choices": [{"index": i, **choice} for i in range(int(body.get("n") or 1))],
        "usage": usage(last_text(body), answer),
    }


def _head(body: JSON, kind: str) -> JSON:
    identity = f"chatcmpl-{zlib.crc32(last_text(body).encode()):08x}"
    return {"id": identity, "object": kind, "created": 1700000000, "model": body.get("model") or "fake"}


def _logprobs(answer: str) -> JSON:
    words = answer.split(" ")
    return {
        "content": [
            {"token": word, "logprob": -0.1, "bytes": list(word.encode()), "top_logprobs": []} for word in words
        ],
        "refusal": None,
    }


def chunks(body: JSON, answer: str, pieces: int) -> Iterator[JSON]:
    """The chunks of a stream: the role, the pieces of the answer, the end, the usage where asked for."""
    head = _head(body, "chat.completion.chunk")

    def chunk(delta: JSON, finish: str | None = None) -> JSON:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]}

    yield chunk({"role": "assistant", "content": ""})
    size = max(1, math.ceil(len(answer) / max(1, pieces)))
    for start in range(0, len(answer), size):
        yield chunk({"content": answer[start : start + size]})
    yield chunk({}, "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": usage(last_text(body), answer)}


def event(data: JSON | bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else orjson.dumps(data)) + b"\n\n"


def embeddings(body: JSON, dims: int, field: str) -> JSON:
    """Vectors derived from each text, as floats or base64, under *field*."""
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    rows = []
    for index, text in enumerate(texts):
        dice = random.Random(zlib.crc32(str(text).encode()))  # noqa: S311 - reproducible, not secret
        vector: Any = [dice.uniform(-1, 1) for _ in range(int(body.get("dimensions") or dims))]
        if body.get("encoding_format") == "base64":
            vector = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        rows.append({"object": "embedding", "index": index, "embedding": vector})
    count = {"prompt_tokens": len(texts), "total_tokens": len(texts)}
    return {"object": "list", "model": body.get("model") or "fake", field: rows, "usage": count}
