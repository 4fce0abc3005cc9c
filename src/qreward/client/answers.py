"""From the bytes of a response to what callers get."""

from __future__ import annotations

import array
import base64
import sys
from collections.abc import Callable
from typing import Any

import openai
import orjson
from openai.types import Embedding
from openai.types.chat import ChatCompletion

from qreward.client.errors import invalid_answer, status_error
from qreward.client.transport import Reply

EmbeddingParser = Callable[[dict[str, Any]], list[Any]]


def content_of(reply: Reply) -> str | None:
    """The text of the first choice; None where the model answered with tool calls alone."""
    try:
        content: str | None = orjson.loads(reply.body)["choices"][0]["message"].get("content")
    except (ValueError, LookupError, TypeError, AttributeError):
        raise _not_a_completion(reply) from None
    return content


def completion_of(reply: Reply) -> ChatCompletion:
    """The whole answer. Fields that break OpenAI's schema are kept as they are, as openai's own client does."""
    try:
        completion = ChatCompletion.model_validate_json(reply.body)
    except ValueError:
        completion = _lenient(reply)
    if not completion.choices:
        raise _not_a_completion(reply)
    request_id = reply.headers.get("x-request-id")
    if request_id is not None:
        completion._request_id = request_id
    return completion


def _lenient(reply: Reply) -> ChatCompletion:
    body = _object(reply)
    choices = body.get("choices")
    choices = choices if isinstance(choices, list) else [None]
    if not all(isinstance(choice, dict) and isinstance(choice.get("message"), dict) for choice in choices):
        raise _not_a_completion(reply)
    return ChatCompletion.construct(**body)


def embeddings_of(reply: Reply) -> list[Any]:
    """The vectors of an OpenAI response: `data`, a list of objects with `embedding`; else those in `embeddings`."""
    body = _object(reply)
    return _embeddings(reply, body.get("data") or body.get("embeddings"), "data")


def alternative_embeddings_of(reply: Reply) -> list[Any]:
    """The vectors of a server that answers with `embeddings`: objects with `embedding`, or bare vectors."""
    return _embeddings(reply, _object(reply).get("embeddings"), "embeddings")


def parsed_embeddings(parser: EmbeddingParser) -> Callable[[Reply], list[Any]]:
    """*parser* gets the decoded body and returns the list; what it raises is a malformed answer."""

    def parse(reply: Reply) -> list[Any]:
        body = _object(reply)
        try:
            return parser(body)
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            raise invalid_answer(reply, f"embedding_parser refused it: {exc!r}") from exc

    return parse


def _embeddings(reply: Reply, entries: Any, field: str) -> list[Any]:
    if not isinstance(entries, list) or not entries:
        _raise_embedded_error(reply)
        raise invalid_answer(reply, f"no embeddings in {field!r}")
    try:
        return [_embedding(index, entry) for index, entry in enumerate(entries)]
    except (ValueError, LookupError, TypeError) as exc:
        raise invalid_answer(reply, f"a malformed embedding in {field!r}: {exc}") from None


def _embedding(index: int, entry: Any) -> Embedding:
    fields = dict(entry) if isinstance(entry, dict) else {"embedding": entry}
    fields["embedding"] = vector(fields["embedding"])
    fields.setdefault("index", index)
    fields.setdefault("object", "embedding")
    return Embedding.construct(**fields)


def vector(value: Any) -> list[float]:
    """A vector from a list of numbers, or from base64 of little-endian float32."""
    if isinstance(value, list):
        return value
    if not isinstance(value, str):
        raise TypeError(f"expected a list of numbers or base64, got {type(value).__name__}")
    floats = array.array("f")
    floats.frombytes(base64.b64decode(value, validate=True))
    if sys.byteorder == "big":
        floats.byteswap()
    return floats.tolist()


def _object(reply: Reply) -> dict[str, Any]:
    try:
        body = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        raise invalid_answer(reply, "not JSON") from None
    if not isinstance(body, dict):
        raise invalid_answer(reply, "not a JSON object")
    return body


def _not_a_completion(reply: Reply) -> openai.APIError:
    _raise_embedded_error(reply)
    try:
        orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return invalid_answer(reply, "not JSON")
    return invalid_answer(reply, "no `choices` with a message")


def _raise_embedded_error(reply: Reply) -> None:
    """Some gateways answer 200 with the error and its status inside."""
    try:
        error = orjson.loads(reply.body)["error"]
        status = int(error["code"])
    except (ValueError, LookupError, TypeError):
        return
    if 400 <= status <= 599:
        raise status_error(Reply(status, reply.headers, reply.body, reply.url))
