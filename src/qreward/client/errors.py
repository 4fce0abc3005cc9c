"""What went wrong, as the exceptions of the `openai` package that users catch."""

from __future__ import annotations

import functools
import importlib
import time
from typing import Any

import aiohttp
import openai
import orjson

from qreward.client.transport import Reply, ResponseTooLarge
from qreward.policy.classify import retry_after_of

_BY_STATUS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    409: openai.ConflictError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
}
_MESSAGE_CHARS = 1_000
_BODY_BYTES = 2**16

# What the transport, or openai's own client where a user put it in between, raises when bytes do not travel.
TRANSPORT_ERRORS = (aiohttp.ClientError, OSError, ResponseTooLarge)


@functools.cache
def httpx_of_openai() -> Any:
    """The httpx that the installed openai is built on: `httpx` before 3.0, `httpx2` since."""
    for base in openai.DefaultAsyncHttpxClient.__mro__:
        name = base.__module__.partition(".")[0]
        if name in ("httpx", "httpx2"):
            return importlib.import_module(name)
    return importlib.import_module("httpx")


def status_error(reply: Reply, secret: str | None = None) -> openai.APIStatusError:
    """The error for a response that is not a success, with the server's words; *secret* never appears in it."""
    reply = _redacted(reply, secret)
    body = _json(reply.body)
    text = _server_message(body, reply.body)
    kind = _BY_STATUS.get(reply.status)
    if kind is None:
        kind = openai.InternalServerError if reply.status >= 500 else openai.APIStatusError
    message = f"Error code: {reply.status}" + (f" - {text}" if text else "")
    inner = body.get("error", body) if isinstance(body, dict) else body
    if body is None:
        inner = reply.body[:_BODY_BYTES].decode("utf-8", "replace")
    error = kind(message, response=httpx_response(reply), body=inner)
    error.retry_after = retry_after_of(error, time.time())  # type: ignore[attr-defined]
    return error


def invalid_answer(reply: Reply, what: str) -> openai.APIResponseValidationError:
    """The server answered 200, but not with what was asked for."""
    shown = reply.body[:200].decode("utf-8", "replace")
    message = f"{what}; the answer begins with {shown!r}" if shown else f"{what}; the answer is empty"
    return openai.APIResponseValidationError(httpx_response(reply), _json(reply.body), message=message)


def stream_error(reply: Reply, data: bytes, secret: str | None = None) -> openai.APIError:
    """An error that arrived as an event in the middle of a stream."""
    redacted = _redacted(Reply(reply.status, reply.headers, data, reply.url), secret)
    body = _json(redacted.body)
    inner = body.get("error", body) if isinstance(body, dict) else body
    message = "The stream reports an error: " + _server_message(body, redacted.body)
    return openai.APIError(message, _request(reply.url), body=inner)


def transport_error(exc: Exception, url: Any) -> openai.APIError:
    """*exc*, raised while talking to *url*, as an APITimeoutError or APIConnectionError."""
    where = f"{url.scheme}://{url.authority.rpartition('@')[2]}{url.path}"
    if isinstance(exc, TimeoutError):
        return timeout_error(url, f"No connection to {where} in time.")
    reason = str(exc) or type(exc).__name__
    return openai.APIConnectionError(message=f"Connection error: POST {where}: {reason}", request=_request(url))


def timeout_error(url: Any, message: str) -> openai.APITimeoutError:
    """An APITimeoutError that says what took too long."""
    error = openai.APITimeoutError(request=_request(url))
    error.message, error.args = message, (message,)
    return error


def httpx_response(reply: Reply, request: Any = None) -> Any:
    """A real httpx response. In an error (*request* is not given) its body is bounded."""
    kept = [(k, v) for k, v in reply.headers.items() if k.lower() not in ("content-encoding", "content-length")]
    body = reply.body if request is not None else reply.body[:_BODY_BYTES]
    request = request if request is not None else _request(reply.url)
    return httpx_of_openai().Response(reply.status, headers=kept, content=body, request=request)


def _request(url: Any) -> Any:
    return httpx_of_openai().Request("POST", str(url.with_user(None)))


def _redacted(reply: Reply, secret: str | None) -> Reply:
    if not secret or len(secret) < 6 or secret.encode() not in reply.body:
        return reply
    return Reply(reply.status, reply.headers, reply.body.replace(secret.encode(), b"***"), reply.url)


def _json(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None


def _server_message(body: Any, raw: bytes) -> str:
    """What the server says, from the shapes that OpenAI, vLLM, FastAPI and gateways use."""
    found: Any = body
    for key in ("error", "message"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    if isinstance(found, dict) and isinstance(found.get("detail"), str | list):
        found = found["detail"]
    if found is None:
        found = raw.decode("utf-8", "replace").strip()
    text = found if isinstance(found, str) else orjson.dumps(found).decode()
    return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + " [...]"
