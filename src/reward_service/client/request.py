"""`RewardRequest`, and its check: everything wrong with a call is said before anything is sent."""

from __future__ import annotations

import operator
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from reward_service.client.media import Media, image_media

_TEXT_FIELDS = ("request_id", "sample_id", "group_id", "scorer_version", "idempotency_key")
_INT_FIELDS = ("source_rank", "policy_version")
_JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


@dataclass
class RewardRequest:
    """One sample to score.

    history: turns ``(text, image)``, oldest first. An image is a PIL image, a path, encoded bytes (these two
        are sent as they are), a numpy uint8 array (H, W) or (H, W, 1|3|4), a torch tensor (1|3|4, H, W),
        float in [0, 1] (clamped) or uint8, or None when the turn has a video.
    required_rewards: names from ``client.rewards()``; an empty list gives an empty result.
    metadata: a JSON object for the scorers; NaN becomes null.
    videos: one entry per turn: bytes (the encoded file), a path **on the server**, or None.
    request_id … policy_version: echoed by the server, and compared with what was sent.
    scorer_version: pins the scorer's version where the server supports it.
    idempotency_key: equal keys are scored once by a server; made up when None.
    """

    history: Sequence[tuple[str, Any]]
    required_rewards: Sequence[str]
    metadata: Mapping[str, Any] | None = None
    videos: Sequence[Any] | None = None
    request_id: str | None = None
    sample_id: str | None = None
    group_id: str | None = None
    source_rank: int | None = None
    policy_version: int | None = None
    scorer_version: str | None = None
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Turn:
    """A checked turn: the text, and the media under their kind."""

    text: str
    image: Media | None
    video: Media | None
    video_path: str | None

    @property
    def media(self) -> list[Media]:
        """What has to be encoded."""
        return [media for media in (self.image, self.video) if media is not None]


@dataclass(frozen=True)
class CheckedRequest:
    """A request that can be sent; `metadata` is JSON already, so that later changes do not reach it."""

    index: int
    turns: tuple[Turn, ...]
    rewards: tuple[str, ...]
    metadata: bytes | None
    identity: dict[str, str | int]


def check_requests(requests: Sequence[RewardRequest]) -> list[CheckedRequest]:
    """Check a call's requests; the same media object in several places is taken once.

    Raises ValueError for a length mismatch, an empty history or a turn without media, TypeError for a
    value of the wrong type; both start with ``requests[i]``.
    """
    if isinstance(requests, RewardRequest) or not isinstance(requests, Sequence):
        raise TypeError(f"score takes a list of RewardRequest, not a {type(requests).__name__}")
    seen: dict[int, Media] = {}
    return [_checked(index, request, seen) for index, request in enumerate(requests)]


def _checked(index: int, request: RewardRequest, seen: dict[int, Media]) -> CheckedRequest:
    where = f"requests[{index}]"
    if not isinstance(request, RewardRequest):
        raise TypeError(f"{where}: must be a RewardRequest, not a {type(request).__name__}")
    history = _list(request.history, f"{where}.history", "(text, image) turns")
    if not history:
        raise ValueError(f"{where}: history is empty; give at least one (text, image) turn")
    videos = [None] * len(history) if request.videos is None else _list(request.videos, f"{where}.videos", "videos")
    if len(videos) != len(history):
        raise ValueError(f"{where}: {len(videos)} videos for {len(history)} turns; use None where a turn has none")
    turns = tuple(
        _turn(turn, video, f"{where}.history[{n}]", seen)
        for n, (turn, video) in enumerate(zip(history, videos, strict=True))
    )
    return CheckedRequest(
        index, turns, _rewards(request, where), _metadata(request.metadata, where), _identity(request, where)
    )


def _list(value: object, where: str, what: str) -> list[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"{where}: must be a list of {what}, not a {type(value).__name__}")
    return list(value)


def _turn(turn: object, video: object, where: str, seen: dict[int, Media]) -> Turn:
    if isinstance(turn, (str, bytes)) or not isinstance(turn, Sequence) or len(turn) != 2:
        raise ValueError(f"{where}: a turn is a pair (text, image), not {type(turn).__name__}")
    text, image = turn
    if not isinstance(text, str):
        raise TypeError(f"{where}: the text must be a str, not a {type(text).__name__}")
    _utf8(text, where)
    if image is None and video is None:
        raise ValueError(f"{where}: a turn needs an image or a video")
    video_path = os.fspath(video) if isinstance(video, (str, os.PathLike)) else None
    if video is not None and video_path is None and not isinstance(video, (bytes, bytearray, memoryview)):
        raise TypeError(f"{where}: a video is bytes, or a path on the server as str, not a {type(video).__name__}")
    return Turn(
        text,
        None if image is None else _once(image, where, seen),
        None if video is None or video_path is not None else _once(video, where, seen),
        video_path,
    )


def _once(value: object, where: str, seen: dict[int, Media]) -> Media:
    known = seen.get(id(value))
    if known is None:
        known = seen[id(value)] = image_media(value, where)
    return known


def _utf8(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: the text is not valid Unicode: {error.reason}") from error


def _rewards(request: RewardRequest, where: str) -> tuple[str, ...]:
    names = _list(request.required_rewards, f"{where}.required_rewards", "reward names")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{where}.required_rewards: a reward name is a str, not {name!r}")
    return tuple(names)


def _metadata(metadata: object, where: str) -> bytes | None:
    if metadata is None:
        return None
    if not isinstance(metadata, Mapping):
        raise TypeError(f"{where}.metadata: must be a dict, not a {type(metadata).__name__}")
    try:
        return orjson.dumps(dict(metadata), option=_JSON)
    except orjson.JSONEncodeError as error:
        raise TypeError(f"{where}.metadata: cannot be sent as JSON: {error}") from error


def _identity(request: RewardRequest, where: str) -> dict[str, str | int]:
    fields: dict[str, str | int] = {}
    for name in _TEXT_FIELDS:
        text = getattr(request, name)
        if text is None:
            continue
        if not isinstance(text, str):
            raise TypeError(f"{where}.{name}: must be a str, not {text!r}")
        _utf8(text, f"{where}.{name}")
        fields[name] = text
    for name in _INT_FIELDS:
        number = getattr(request, name)
        if number is None:
            continue
        try:
            whole = operator.index(number)
        except TypeError:
            raise TypeError(f"{where}.{name}: must be an int, not {number!r}") from None
        if not -(2**63) <= whole < 2**63:
            raise ValueError(f"{where}.{name}: {number} does not fit into 64 bits")
        fields[name] = whole
    fields.setdefault("idempotency_key", uuid.uuid4().hex)
    return fields
