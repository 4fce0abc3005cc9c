"""From the arguments of a call to the bytes of its request."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import openai
import orjson

CHAT = "/chat/completions"
EMBEDDINGS = "/embeddings"

# "Not given", as openai spells it; `Omit` appeared in 1.107.
_LEFT_OUT = tuple({openai.NotGiven, getattr(openai, "Omit", openai.NotGiven)})
_NOT_IN_BODY = frozenset({"extra_body", "extra_headers", "extra_query", "timeout"})


class Request:
    """One POST, ready to be sent any number of times to any endpoint.

    *arguments* is what the method of an `AsyncOpenAI` for *path* takes, ``extra_*`` and ``timeout`` included; those of
    None (embeddings only) or "not given" stay at home, all others reach the body, whether OpenAI knows them or not.
    extra_body wins. timeout_s bounds one attempt (of a stream: the silence before each piece); None = no limit.
    """

    __slots__ = ("_data", "arguments", "extra_headers", "extra_query", "path", "timeout_s")

    def __init__(self, path: str, arguments: dict[str, Any]) -> None:
        self.path = path
        self.arguments = arguments
        self.extra_headers: Mapping[str, Any] | None = arguments.get("extra_headers") or None
        self.extra_query: Mapping[str, Any] | None = arguments.get("extra_query") or None
        self.timeout_s = _seconds(arguments.get("timeout"))
        self._data: bytes | None = None

    @property
    def data(self) -> bytes:
        """The body; TypeError when an argument cannot be sent as JSON."""
        if self._data is None:
            self._data = encode(self._body())
        return self._data

    def _body(self) -> dict[str, Any]:
        body = {k: v for k, v in self.arguments.items() if k not in _NOT_IN_BODY and not isinstance(v, _LEFT_OUT)}
        extra_body = self.arguments.get("extra_body")
        return {**body, **extra_body} if extra_body else body


def chat_request(
    messages: Any, model: str, arguments: dict[str, Any], temperature: float | None, timeout: Any
) -> Request:
    """A chat completion. *arguments* win over *temperature* and *timeout*; a temperature of None is not sent."""
    if isinstance(messages, Iterator):  # it is read once per attempt
        messages = list(messages)
    arguments = {"messages": messages, "model": model, "temperature": temperature, "timeout": timeout, **arguments}
    if arguments["temperature"] is None:
        del arguments["temperature"]
    if isinstance(arguments["timeout"], _LEFT_OUT):
        arguments["timeout"] = timeout
    return Request(CHAT, arguments)


def embeddings_request(arguments: dict[str, Any], timeout: Any) -> Request:
    """Vectors travel as base64 unless *arguments* say otherwise: half the bytes, and no parsing of digits."""
    given = {k: v for k, v in arguments.items() if v is not None and not isinstance(v, _LEFT_OUT)}
    return Request(EMBEDDINGS, {"encoding_format": "base64", "timeout": timeout, **given})


def _seconds(timeout: Any) -> float | None:
    """Seconds from a number or an `httpx.Timeout`; None = unlimited."""
    if timeout is None or isinstance(timeout, int | float):
        return timeout or None
    read: float | None = timeout.read
    return read


def encode(body: Mapping[str, Any]) -> bytes:
    """JSON; pydantic models, numpy values, sets and other iterables included."""
    try:
        return orjson.dumps(body, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:
        # Keys that are not strings, integers beyond 64 bits and lone surrogates are more than orjson takes.
        return json.dumps(body, default=_plain).encode()


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return dict(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return list(value)
    raise TypeError(f"{type(value).__name__} {str(value)[:50]!r} cannot be sent as JSON")
