"""GIF: header, and a count of the frames without decoding one."""

from __future__ import annotations

import io
import struct

from PIL import GifImagePlugin, Image

from ..errors import BadMedia
from .header import MAX_PARTS, Header
from .refusals import moving

KIND = "GIF"
BEGINNINGS = (b"GIF87a", b"GIF89a")

_EXTENSION, _FRAME, _TRAILER = 0x21, 0x2C, 0x3B
_FRAMES_COUNTED = 1000


def read_header(blob: bytes) -> Header:
    """Size of a GIF with one frame; other GIFs raise `BadMedia`."""
    width, height, flags = struct.unpack_from("<HHB", blob, 6)
    at = 13 + _colour_table_bytes(flags)
    frames = 0
    while at < len(blob) and blob[at] in (_EXTENSION, _FRAME):
        if blob[at] == _FRAME:
            frames += 1
            if frames > _FRAMES_COUNTED:
                raise moving(KIND, f"more than {_FRAMES_COUNTED:,}")
            left, top, frame_width, frame_height, flags = struct.unpack_from("<HHHHB", blob, at + 1)
            if frames == 1 and (left + frame_width > width or top + frame_height > height):
                raise BadMedia(f"GIF with a frame that does not fit its canvas of {width} × {height} pixels")
            at += 11 + _colour_table_bytes(flags)
        else:
            at += 2
        at = _after_sub_blocks(blob, at)
    if frames != 1:
        raise moving(KIND, f"{frames:,}") if frames else BadMedia("GIF without a frame; the file is damaged")
    return Header(KIND, width, height)


def open_picture(blob: bytes) -> Image.Image:
    """The only frame, not decoded yet."""
    return GifImagePlugin.GifImageFile(io.BytesIO(blob))


def _colour_table_bytes(flags: int) -> int:
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _after_sub_blocks(blob: bytes, at: int) -> int:
    """Position behind a chain of sub-blocks; behind the end of the file where the chain is cut off."""
    for _ in range(MAX_PARTS):
        if at >= len(blob):
            return at
        length = blob[at]
        at += 1 + length
        if not length:
            return at
    raise BadMedia(f"GIF with more than {MAX_PARTS:,} blocks in one frame; save it as PNG")
