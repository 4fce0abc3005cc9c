"""WebP: header; the codec reserves whole canvases as soon as it is opened, so the size is read here."""

from __future__ import annotations

import io
import struct

from PIL import Image, WebPImagePlugin

from ..errors import BadMedia
from .header import MAX_PARTS, Header
from .refusals import moving
from .tiff import exif_orientation

KIND = "WebP"
_ANIMATED, _HAS_EXIF = 0x02, 0x08


def accepts(blob: bytes) -> bool:
    """Whether the file begins as a WebP."""
    return blob[:4] == b"RIFF" and blob[8:12] == b"WEBP"


def read_header(blob: bytes) -> Header:
    """Size and orientation of a WebP; one with several frames raises `BadMedia`."""
    coding = blob[12:16]
    if coding == b"VP8 ":
        if blob[23:26] != b"\x9d\x01\x2a":
            raise BadMedia("WebP without the start of a key frame; the file is damaged")
        width, height = struct.unpack_from("<HH", blob, 26)
        return Header(KIND, width & 0x3FFF, height & 0x3FFF)
    if coding == b"VP8L":
        (bits,) = struct.unpack_from("<I", blob, 21)
        return Header(KIND, (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1)
    if coding == b"VP8X":
        flags, low_width, high_width, low_height, high_height = struct.unpack_from("<B3xHBHB", blob, 20)
        width, height = low_width + (high_width << 16) + 1, low_height + (high_height << 16) + 1
        return Header(KIND, width, height, _walk_chunks(blob, flags))
    raise BadMedia(f"WebP of unknown coding {coding.decode('latin-1')!a}; the file is damaged")


def open_picture(blob: bytes) -> Image.Image:
    """The picture; opening allocates about 8 bytes per pixel."""
    return WebPImagePlugin.WebPImageFile(io.BytesIO(blob))


def _walk_chunks(blob: bytes, flags: int) -> int:
    """Orientation of an extended WebP; raises for more than one frame."""
    if not flags & (_ANIMATED | _HAS_EXIF):
        return 1
    frames = 0
    orientation = 1
    at = 12
    for _ in range(MAX_PARTS):
        if at + 8 > len(blob):
            break
        name, length = struct.unpack_from("<4sI", blob, at)
        if name == b"ANMF":
            frames += 1
        elif name == b"EXIF":
            orientation = exif_orientation(blob[at + 8 : at + 8 + length])
        # Chunks begin at even positions.
        at += 8 + length + (length & 1)
    if frames > 1:
        raise moving(KIND, f"{frames:,}")
    return orientation
