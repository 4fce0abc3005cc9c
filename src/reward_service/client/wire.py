"""Bodies of ``POST /score`` as JSON or msgpack: each item is serialised once and joined per request."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from reward_service.aggregation import Aggregation
from reward_service.client.errors import InvalidAnswer
from reward_service.client.media import Media
from reward_service.client.request import CheckedRequest

PROTOCOL_VERSION = "1"
JSON = "application/json"
MSGPACK = "application/x-msgpack"
# What the top-level fields may grow by between attempts: the digits of the remaining deadline.
_SLACK_BYTES = 64


@dataclass(frozen=True, slots=True)
class Item:
    """One serialised request, with what its answer is checked against."""

    index: int
    data: bytes
    rewards: tuple[str, ...]
    identity: Mapping[str, str | int]


@dataclass(frozen=True)
class CallOptions:
    """Top-level fields of a call; those that are None are not sent.

    `ends_at` is the deadline on the loop's clock, set when the call starts.
    """

    aggregation: Aggregation | None = None
    priority: int | None = None
    deadline_s: float | None = None
    ends_at: float | None = None

    def remaining_s(self, now: float) -> float | None:
        """What is left of the deadline, never quite nothing; None without one."""
        return None if self.ends_at is None else max(round(self.ends_at - now, 3), 0.001)

    def fields(self, remaining_s: float | None = None) -> dict[str, Any]:
        """The fields as sent; *remaining_s* is what is left of the deadline now."""
        fields: dict[str, Any] = {"protocol_version": PROTOCOL_VERSION}
        if self.aggregation is not None:
            fields["aggregation"] = self.aggregation.to_mapping()
        if self.priority is not None:
            fields["priority"] = self.priority
        if self.deadline_s is not None:
            fields["deadline_s"] = self.deadline_s if remaining_s is None else remaining_s
        return fields

    @property
    def key(self) -> bytes:
        """Equal for calls that may share a POST."""
        return orjson.dumps(self.fields(), option=orjson.OPT_SORT_KEYS)


class Codec(Protocol):
    """How bodies are written."""

    content_type: str
    accept: str

    def media(self, data: bytes) -> Any:
        """*data* as `item` embeds it; computed once per distinct image."""

    def item(self, request: CheckedRequest, encoded: Mapping[Media, Any]) -> Item:
        """Serialise one request; *encoded* holds `media` of each of its media."""

    def body(self, items: Sequence[Item], fields: dict[str, Any]) -> bytes:
        """A whole body."""


class JsonCodec:
    """JSON with base64 media."""

    content_type = JSON
    accept = JSON

    def media(self, data: bytes) -> Any:
        return orjson.Fragment(b'"' + base64.b64encode(data) + b'"')

    def item(self, request: CheckedRequest, encoded: Mapping[Media, Any]) -> Item:
        metadata = None if request.metadata is None else orjson.Fragment(request.metadata)
        fields = _item_fields(request, encoded, metadata, ("image_b64", "video_b64"))
        return Item(request.index, orjson.dumps(fields), request.rewards, request.identity)

    def body(self, items: Sequence[Item], fields: dict[str, Any]) -> bytes:
        head = orjson.dumps(fields)[:-1]
        return b"".join((head, b',"requests":[', b",".join(item.data for item in items), b"]}"))


class MsgpackCodec:
    """msgpack with raw media bytes: a quarter smaller than base64. Needs msgspec."""

    content_type = MSGPACK
    accept = f"{MSGPACK}, {JSON};q=0.5"

    def __init__(self) -> None:
        import msgspec

        self._encode: Callable[[Any], bytes] = msgspec.msgpack.encode
        self._raw = msgspec.Raw

    def media(self, data: bytes) -> Any:
        return data

    def item(self, request: CheckedRequest, encoded: Mapping[Media, Any]) -> Item:
        metadata = None if request.metadata is None else orjson.loads(request.metadata)
        fields = _item_fields(request, encoded, metadata, ("image", "video"))
        return Item(request.index, self._encode(fields), request.rewards, request.identity)

    def body(self, items: Sequence[Item], fields: dict[str, Any]) -> bytes:
        return self._encode({**fields, "requests": [self._raw(item.data) for item in items]})


def room_for_items(codec: Codec, options: CallOptions, max_body_bytes: int) -> int:
    """Bytes that the items of one body may have together, separators included."""
    return max_body_bytes - len(codec.body((), options.fields())) - _SLACK_BYTES


def codec_for(body_format: str) -> Codec:
    """The codec named *body_format*."""
    return MsgpackCodec() if body_format == "msgpack" else JsonCodec()


def decode(body: bytes, content_type: str) -> Any:
    """Parse an answer by its content type; raises InvalidAnswer."""
    try:
        if "msgpack" in content_type:
            import msgspec

            return msgspec.msgpack.decode(body)
        return orjson.loads(body)
    except ValueError as error:
        start = body[:80].decode("utf-8", "replace")
        raise InvalidAnswer(
            f"the answer is not {content_type or JSON}: it starts with {start!r}; is this a reward service?"
        ) from error


def _item_fields(
    request: CheckedRequest, encoded: Mapping[Media, Any], metadata: Any, names: tuple[str, str]
) -> dict[str, Any]:
    image_name, video_name = names
    history: list[dict[str, Any]] = []
    for turn in request.turns:
        fields: dict[str, Any] = {"text": turn.text}
        if turn.image is not None:
            fields[image_name] = encoded[turn.image]
        if turn.video is not None:
            fields[video_name] = encoded[turn.video]
        if turn.video_path is not None:
            fields["video_path"] = turn.video_path
        history.append(fields)
    item: dict[str, Any] = {"history": history, "required_rewards": list(request.rewards), **request.identity}
    if metadata is not None:
        item["metadata"] = metadata
    return item
