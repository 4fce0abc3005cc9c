"""Request bodies become checked `ScoreRequest`s, or one `RequestError` that says what is wrong."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
import pydantic

from reward_service.config import LimitsConfig
from reward_service.errors import BadRequest, TooLarge, Unprocessable
from reward_service.schemas import IDENTITY_FIELDS, PROTOCOL_VERSION, ScoreItemRequest, ScoreRequest, Turn

MSGPACK = "application/x-msgpack"
MSGPACK_TYPES = frozenset({MSGPACK, "application/msgpack", "application/vnd.msgpack"})
NO_IDENTITY: dict[str, str | int | None] = dict.fromkeys(IDENTITY_FIELDS)


@dataclass(frozen=True)
class BodyRules:
    """What a body is checked against."""

    limits: LimitsConfig
    rewards: Collection[str]


def parse_body(raw: bytes, content_type: str, rules: BodyRules) -> ScoreRequest:
    """Parse and check *raw*; raises BadRequest, TooLarge or Unprocessable."""
    body = _parse(raw, content_type)
    if body.protocol_version != PROTOCOL_VERSION:
        raise BadRequest(f"protocol_version {body.protocol_version[:20]!r} is not supported; this server speaks '1'")
    if body.grad_mode:
        raise BadRequest("grad_mode is not supported: this server returns scores, not gradients")
    most = rules.limits.max_items_per_request
    if len(body.requests) > most:
        raise TooLarge(
            f"{len(body.requests)} items in one request; at most {most} (limits.max_items_per_request): "
            "send it in parts"
        )
    for index, item in enumerate(body.requests):
        _check_item(index, item, rules)
    _check_aggregation(body, rules)
    return body


def _parse(raw: bytes, content_type: str) -> ScoreRequest:
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind not in MSGPACK_TYPES:
            body = ScoreRequest.model_validate_json(raw)
            _refuse_raw_media(body)
            return body
        return ScoreRequest.model_validate(msgspec.msgpack.decode(raw))
    except pydantic.ValidationError as error:
        raise Unprocessable(_describe(error)) from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Unprocessable(f"the body is not msgpack: {error}") from error


def _describe(error: pydantic.ValidationError) -> str:
    """The first problems of *error* as ``where: what``, with nothing of the input's bulk."""
    lines = [
        f"{'.'.join(str(part) for part in ('body', *problem['loc']))}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)[:10]
    ]
    more = error.error_count() - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def _refuse_raw_media(body: ScoreRequest) -> None:
    for index, item in enumerate(body.requests):
        for turn in item.history:
            if turn.image is not None or turn.video is not None:
                raise Unprocessable(
                    f"requests[{index}]: image and video are raw bytes of msgpack bodies; use image_b64"
                )


def _check_item(index: int, item: ScoreItemRequest, rules: BodyRules) -> None:
    if not item.history:
        raise BadRequest(f"requests[{index}]: history is empty")
    for turn_index, turn in enumerate(item.history):
        problem = _turn_problem(turn, rules.limits)
        if problem:
            raise Unprocessable(f"requests[{index}].history[{turn_index}]: {problem}")
    for reward in item.required_rewards:
        if reward not in rules.rewards:
            known = ", ".join(sorted(rules.rewards))
            raise BadRequest(f"requests[{index}]: unknown reward {reward[:80]!r}; available: {known}")
    if item.scorer_version is not None:
        raise BadRequest(f"requests[{index}]: scorer_version cannot be pinned on a server of several rewards")
    if item.metadata is not None:
        _check_metadata(index, item.metadata, rules.limits.max_json_depth)


def _turn_problem(turn: Turn, limits: LimitsConfig) -> str | None:
    if turn.image_ipc is not None:
        return "image_ipc is not supported; send image_b64"
    if turn.image_b64 is not None and turn.image is not None:
        return "both image_b64 and image; send one"
    videos = (turn.video_b64 is not None) + (turn.video_path is not None) + (turn.video is not None)
    if videos > 1:
        return "more than one of video_b64, video_path, video; send one"
    if not videos and turn.image_b64 is None and turn.image is None:
        return "no media: give image_b64, video_b64 or video_path"
    if len(turn.text) > limits.max_text_chars:
        return f"text of {len(turn.text)} characters; at most {limits.max_text_chars} (limits.max_text_chars)"
    return None


def _check_metadata(index: int, metadata: dict[str, Any], most: int) -> None:
    """Bound the nesting, without recursion (a scorer may well recurse), and refuse what JSON cannot hold."""
    level: list[Any] = [metadata]
    for _ in range(most):
        deeper: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                if not all(isinstance(key, str) for key in value):
                    raise Unprocessable(f"requests[{index}].metadata: a key is no text; metadata is JSON")
                deeper += value.values()
            elif isinstance(value, list):
                deeper += value
            elif value is not None and not isinstance(value, (str, int, float)):
                kind = type(value).__name__
                raise Unprocessable(f"requests[{index}].metadata: a value of type {kind}; metadata is JSON")
        if not deeper:
            return
        level = deeper
    raise Unprocessable(f"requests[{index}].metadata: nested deeper than {most} levels (limits.max_json_depth)")


def _check_aggregation(body: ScoreRequest, rules: BodyRules) -> None:
    weights = body.aggregation.weights if body.aggregation else None
    for name in weights or ():
        if name not in rules.rewards:
            raise BadRequest(f"aggregation.weights: unknown reward {name[:80]!r}")


def identity_of(item: ScoreItemRequest) -> dict[str, str | int | None]:
    """The identity fields of *item*, to be echoed."""
    if item.model_fields_set.isdisjoint(IDENTITY_FIELDS):
        return NO_IDENTITY
    return {name: getattr(item, name) for name in IDENTITY_FIELDS}


def fingerprint(item: ScoreItemRequest) -> bytes:
    """SHA-256 of everything in *item* but its idempotency key: equal exactly for equal payloads."""
    digest = hashlib.sha256()
    for turn in item.history:
        for part in (turn.text, turn.image_b64, turn.video_b64, turn.video_path, turn.image, turn.video):
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            digest.update(b"-" if data is None else b"%d:" % len(data))
            digest.update(data or b"")
    rest = {name: getattr(item, name) for name in IDENTITY_FIELDS[:-1]}
    rest |= {"required_rewards": item.required_rewards, "metadata": item.metadata}
    try:
        digest.update(orjson.dumps(rest, option=orjson.OPT_SORT_KEYS))
    except TypeError:  # an integer beyond 64 bits in the metadata
        digest.update(json.dumps(rest, sort_keys=True).encode())
    return digest.digest()
