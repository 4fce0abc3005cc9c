"""TIFF headers, and the orientation in EXIF data, which is a TIFF without pixels."""

from __future__ import annotations

import io
import struct
from typing import NamedTuple

from PIL import Image, TiffImagePlugin

from ..errors import BadMedia
from .header import Header

KIND = "TIFF"
BEGINNINGS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _ORIENTATION = 256, 257, 258, 259, 262, 274
_STRIP_OFFSETS, _TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS = 273, 322, 323, 324
_BYTE, _SHORT, _LONG = 1, 3, 4
_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
# None, LZW, Deflate (two numbers), PackBits. The others open more codecs to attack; fax decoders print a line
# on the standard error for each damaged row.
_ACCEPTED_COMPRESSIONS = frozenset({1, 5, 8, 32946, 32773})
# Codecs reserve a whole tile, however small the picture is.
_MAX_TILE_PIXELS = 4096 * 4096
# One Python object per strip or tile: enough for 16 × 16 tiles of 16 megapixels.
_MAX_SEGMENTS = 65_536


class _Directory(NamedTuple):
    counts: dict[int, int]
    # First value of tags with small unsigned integers; for several values out of line, their offset.
    values: dict[int, int]
    claimed_bytes: int
    next_offset: int


def exif_orientation(data: bytes) -> int:
    """Orientation in EXIF data (with or without ``Exif\\0\\0`` in front); 1 where it is absent or broken."""
    if data[:6] == b"Exif\0\0":
        data = data[6:]
    try:
        orientation = _read_directory(data).values.get(_ORIENTATION, 1)
    except struct.error:
        return 1
    return orientation if 1 <= orientation <= 8 else 1


def read_header(blob: bytes) -> Header:
    """Size and orientation of a TIFF with one page; other TIFFs raise `BadMedia`."""
    if blob[2:4] in (b"+\x00", b"\x00+"):
        raise BadMedia("BigTIFF is not accepted; save it as PNG, or as TIFF below 4 GB")
    directory = _read_directory(blob)
    values = directory.values
    _check_directory(directory, len(blob))
    compression = values.get(_COMPRESSION, 1)
    if compression not in _ACCEPTED_COMPRESSIONS:
        raise BadMedia(f"TIFF with compression {compression} is not accepted; use none, LZW, Deflate or PackBits")
    # Pillow has no rule for these two: it would leave them almost black, or negative.
    if values.get(_BITS) == 12 and directory.counts[_BITS] == 1:
        raise BadMedia("TIFF with 12-bit samples is not accepted; convert it to 8 or 16 bits")
    if values.get(_BITS) == 16 and directory.counts[_BITS] == 1 and values.get(_PHOTOMETRIC, 0) == 0:
        raise BadMedia("TIFF with 16 bits and white as 0 is not accepted; save it with black as 0")
    orientation = values.get(_ORIENTATION, 1)
    return Header(
        KIND,
        values.get(_WIDTH, 0),
        values.get(_HEIGHT, 0),
        orientation if 1 <= orientation <= 8 else 1,
    )


def open_picture(blob: bytes) -> Image.Image:
    """The picture, not decoded yet. Pillow turns it upright while it decodes."""
    return TiffImagePlugin.TiffImageFile(io.BytesIO(blob))


def _check_directory(directory: _Directory, file_bytes: int) -> None:
    if directory.next_offset:
        raise BadMedia("TIFF with several pages; send one page")
    # Tags may point at the same bytes again and again.
    if directory.claimed_bytes > file_bytes:
        raise BadMedia(f"TIFF tags claim {directory.claimed_bytes:,} bytes, the file has {file_bytes:,}; it is damaged")
    segments = max(directory.counts.get(tag, 0) for tag in (_STRIP_OFFSETS, _TILE_OFFSETS))
    if segments > _MAX_SEGMENTS:
        raise BadMedia(f"TIFF in {segments:,} strips or tiles; the bound is {_MAX_SEGMENTS:,}")
    tile_width, tile_height = (directory.values.get(tag, 0) for tag in (_TILE_WIDTH, _TILE_HEIGHT))
    if tile_width * tile_height > _MAX_TILE_PIXELS:
        raise BadMedia(f"TIFF with tiles of {tile_width:,} × {tile_height:,}; the bound is {_MAX_TILE_PIXELS:,} pixels")


def _read_directory(data: bytes) -> _Directory:
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        raise struct.error("no byte order")
    (start,) = struct.unpack_from(order + "I", data, 4)
    (entries,) = struct.unpack_from(order + "H", data, start)
    counts: dict[int, int] = {}
    values: dict[int, int] = {}
    claimed = 0
    for at in range(start + 2, start + 2 + 12 * entries, 12):
        tag, kind, count = struct.unpack_from(order + "HHI", data, at)
        counts[tag] = count
        value_bytes = _VALUE_BYTES.get(kind, 0) * count
        if value_bytes > 4:
            claimed += value_bytes
        layout = {_BYTE: "B", _SHORT: "H", _LONG: "I"}.get(kind)
        if layout:
            (values[tag],) = struct.unpack_from(order + (layout if value_bytes <= 4 else "I"), data, at + 8)
    at = start + 2 + 12 * entries
    # EXIF data often ends without the offset of a next directory.
    next_offset = struct.unpack_from(order + "I", data, at)[0] if len(data) >= at + 4 else 0
    return _Directory(counts, values, claimed, next_offset)
