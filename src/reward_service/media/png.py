"""PNG: header, and only the chunks that make pixels for the codec."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator

from PIL import Image, PngImagePlugin

from ..errors import BadMedia
from .header import MAX_PARTS, Header
from .refusals import moving
from .tiff import exif_orientation

KIND = "PNG"
BEGINNINGS = (b"\x89PNG\r\n\x1a\n",)

_PIXEL_CHUNKS = frozenset({b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND"})
_GREY, _COLOUR = 0, 2


def read_header(blob: bytes) -> Header:
    """Size and orientation of a PNG; an APNG with several frames raises `BadMedia`."""
    if blob[12:16] != b"IHDR":
        raise BadMedia("PNG that does not begin with its IHDR chunk; the file is damaged")
    width, height, depth, colour = struct.unpack_from(">IIBB", blob, 16)
    orientation = 1
    for name, at, length in _chunks(blob):
        if name == b"acTL":
            (frames,) = struct.unpack_from(">I", blob, at + 8)
            if frames > 1:
                raise moving("PNG", f"{frames:,}")
        elif name == b"eXIf":
            orientation = exif_orientation(blob[at + 8 : at + 8 + length])
        elif name == b"tRNS" and (depth, colour) == (16, _COLOUR):
            # The codec keeps 8 of the 16 bits, so the one transparent colour can no longer be told apart.
            raise BadMedia("16-bit colour PNG with a transparent colour; save it with an alpha channel")
    return Header(KIND, width, height, orientation)


def open_picture(blob: bytes) -> Image.Image:
    """The picture, not decoded yet."""
    image = PngImagePlugin.PngImageFile(io.BytesIO(_pixels_only(blob)))
    depth, colour = blob[24], blob[25]
    if colour == _GREY and depth in (2, 4) and "transparency" in image.info:
        # Pillow widens the samples to 8 bits and leaves the transparent value as it was.
        most = (1 << depth) - 1
        image.info["transparency"] = (image.info["transparency"] & most) * (255 // most)
    return image


def _chunks(blob: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(name, position, length of the data) of the chunks up to IEND or the end of the file."""
    at = 8
    for _ in range(MAX_PARTS):
        if at + 8 > len(blob):
            return
        length, name = struct.unpack_from(">I4s", blob, at)
        yield name, at, length
        if name == b"IEND":
            return
        at += 12 + length
    raise BadMedia(f"PNG with more than {MAX_PARTS:,} chunks; save it again")


def _pixels_only(blob: bytes) -> bytes:
    """The file without text and profiles, which the codec would unpack to megabytes for nothing."""
    chunks = list(_chunks(blob))
    if all(name in _PIXEL_CHUNKS for name, _, _ in chunks):
        return blob
    view = memoryview(blob)
    kept = (view[at : at + 12 + length] for name, at, length in chunks if name in _PIXEL_CHUNKS)
    return b"".join((view[:8], *kept))
