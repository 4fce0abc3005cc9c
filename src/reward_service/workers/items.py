"""Batch messages become `ScoreItem`s: images are views into shared memory, built only when looked at.

This module runs in scorer processes: standard library and Pillow, Python 3.10.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reward_service.scorers.base import ScoreItem

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage


class Media:
    """Resolves media references of one connection.

    References: ``["a", offset, width, height]`` RGB pixels and ``["a", offset, length]`` bytes in the arena
    that the gateway shared, ``["b", offset, length]`` encoded bytes in the frame's blob, ``["p", path]`` a file.
    """

    def __init__(self, arena_fd: int | None, arena_bytes: int) -> None:
        self._arena: memoryview | None = None
        if arena_fd is not None:
            self._arena = memoryview(mmap.mmap(arena_fd, arena_bytes, prot=mmap.PROT_READ))

    def image(self, ref: list[Any], blob: bytes) -> PILImage:
        """The picture as RGB; a copy, so that it may outlive the batch."""
        from PIL import Image

        if ref[0] == "b":
            return _decode(blob[ref[1] : ref[1] + ref[2]])
        _, offset, width, height = ref
        pixels = self._view(offset, width * height * 3)
        return Image.frombuffer("RGB", (width, height), pixels, "raw", "RGB", 0, 1)  # type: ignore[arg-type]

    def video(self, ref: list[Any] | None, blob: bytes) -> bytes | Path | None:
        """The encoded file: its bytes (a copy), or the path of a file on this node."""
        if ref is None:
            return None
        if ref[0] == "p":
            return Path(ref[1])
        if ref[0] == "b":
            return blob[ref[1] : ref[1] + ref[2]]
        return bytes(self._view(ref[1], ref[2]))

    def _view(self, offset: int, length: int) -> memoryview:
        if self._arena is None:
            raise RuntimeError("the gateway sent a shared-memory reference over a connection without one")
        return self._arena[offset : offset + length]


def _decode(blob: bytes) -> PILImage:
    """The same pixels as the gateway's: the same code, and the gateway has checked the bounds."""
    from PIL import Image

    from reward_service.media.image import open_image

    pending = open_image(blob, max_pixels=sys.maxsize)
    pixels = bytearray(pending.nbytes)
    pending.decode_into(memoryview(pixels))
    return Image.frombuffer("RGB", (pending.width, pending.height), pixels, "raw", "RGB", 0, 1)


class LazyTurn(Sequence[Any]):
    """``(text, image)`` whose image is built at the first look."""

    __slots__ = ("_blob", "_image", "_media", "_ref", "text")

    def __init__(self, text: str, ref: list[Any] | None, blob: bytes, media: Media) -> None:
        self.text = text
        self._ref = ref
        self._blob = blob
        self._media = media
        self._image: PILImage | None = None

    @property
    def image(self) -> PILImage | None:
        if self._image is None and self._ref is not None:
            self._image = self._media.image(self._ref, self._blob)
        return self._image

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        if index in (0, -2):
            return self.text
        if index in (1, -1):
            return self.image
        return (self.text, self.image)[index]

    def __repr__(self) -> str:
        return f"({self.text!r}, {'<image>' if self._ref else None})"


def build(entry: dict[str, Any], blob: bytes, media: Media) -> ScoreItem:
    """One item of a batch message: ``{"h": [[text, image ref], …], "v": [video ref, …] | null, "m": metadata}``."""
    videos = entry.get("v")
    return ScoreItem(
        history=[LazyTurn(text, ref, blob, media) for text, ref in entry["h"]],
        videos=None if videos is None else [media.video(ref, blob) for ref in videos],
        metadata=entry.get("m"),
    )
