"""BMP: header."""

from __future__ import annotations

import io
import struct

from PIL import BmpImagePlugin, Image

from ..errors import BadMedia
from .header import Header

KIND = "BMP"
BEGINNINGS = (b"BM",)

_OS2_HEADER_BYTES = 12
# Plain pixels, and plain pixels with colour masks. Pillow unpacks run lengths in Python, pixel by pixel.
_ACCEPTED_COMPRESSIONS = (0, 3)


def read_header(blob: bytes) -> Header:
    """Size of a BMP without compression; others raise `BadMedia`."""
    (header_bytes,) = struct.unpack_from("<I", blob, 14)
    if header_bytes == _OS2_HEADER_BYTES:
        width, height = struct.unpack_from("<HH", blob, 18)
        return Header(KIND, width, height)
    width, height, _planes, _bits, compression = struct.unpack_from("<iiHHI", blob, 18)
    if compression not in _ACCEPTED_COMPRESSIONS:
        raise BadMedia(f"compressed BMP (method {compression}) is not accepted; save it as PNG")
    # A negative height says that the rows are stored from the top.
    return Header(KIND, width, abs(height))


def open_picture(blob: bytes) -> Image.Image:
    """The picture, not decoded yet."""
    return BmpImagePlugin.BmpImageFile(io.BytesIO(blob))
