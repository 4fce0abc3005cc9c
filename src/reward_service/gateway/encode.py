"""Batches become frames: items for scorers that share this node's memory, and for those that do not."""

from __future__ import annotations

import json
from typing import Any, Protocol

import orjson

from reward_service.gateway.work import RemoteForm, Work
from reward_service.workers.protocol import HEADER


class Encoder(Protocol):
    """How one link writes a batch."""

    shares_memory: bool

    def batch(self, batch_id: int, works: list[Work]) -> bytes:
        """The frame for *works*."""
        ...


class SharedMemoryEncoder:
    """References into the arena; each item was encoded once, for all rewards."""

    shares_memory = True

    def batch(self, batch_id: int, works: list[Work]) -> bytes:
        body = b'{"t":"batch","id":%d,"items":[%b]}' % (batch_id, b",".join(work.fragment for work in works))
        return HEADER.pack(len(body), 0) + body


class InlineEncoder:
    """Encoded files travel in the frame (a JPEG is a tenth of its pixels)."""

    shares_memory = False

    def batch(self, batch_id: int, works: list[Work]) -> bytes:
        parts: list[bytes] = []
        size = 0
        items: list[bytes] = []
        for work in works:
            remote = work.blob
            assert remote is not None, "encoded media is kept whenever other nodes may ask for it"
            refs: list[list[Any]] = []
            for part in remote.parts:
                refs.append(["b", size, len(part)])
                parts.append(part)
                size += len(part)
            items.append(_item(remote, refs))
        body = b'{"t":"batch","id":%d,"items":[%b]}' % (batch_id, b",".join(items))
        return b"".join((HEADER.pack(len(body), size), body, *parts))


def _item(remote: RemoteForm, refs: list[list[Any]]) -> bytes:
    history = [(text, None if part is None else refs[part]) for text, part in remote.history]
    videos = None
    if remote.videos is not None:
        videos = [["p", video] if isinstance(video, str) else None if video is None else refs[video]
                  for video in remote.videos]  # fmt: skip
    return fragment(history, videos, remote.metadata)


def fragment(history: Any, videos: Any, metadata: bytes) -> bytes:
    """One item of a batch message; see `workers.items.build`."""
    return b'{"h":%b,"v":%b,"m":%b}' % (to_json(history), to_json(videos), metadata)


def to_json(value: Any) -> bytes:
    """JSON, also of integers beyond 64 bits."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
