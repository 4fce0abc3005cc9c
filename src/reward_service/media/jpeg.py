"""JPEG: header and orientation, and RGB straight into the caller's buffer."""

from __future__ import annotations

import io

from PIL import Image, JpegImagePlugin

from ..errors import BadMedia
from .header import Header
from .pixels import as_pixels, upright_view
from .tiff import exif_orientation

try:
    import simplejpeg
except ImportError:
    # A scorer process on another node decodes pictures too, in an environment that need not have the faster codec.
    simplejpeg = None

KIND = "JPEG"
BEGINNINGS = (b"\xff\xd8\xff",)

_SOI, _EOI, _SOS, _APP1, _TEM = 0xD8, 0xD9, 0xDA, 0xE1, 0x01
# Baseline, extended and progressive, in Huffman and in arithmetic coding.
_FRAMES = frozenset({0xC0, 0xC1, 0xC2, 0xC9, 0xCA})
_PROGRESSIVE = frozenset({0xC2, 0xCA})
_REFUSED_FRAMES = frozenset({0xC3, 0xC5, 0xC6, 0xC7, 0xCB, 0xCD, 0xCE, 0xCF})
_WITHOUT_LENGTH = frozenset({0x00, _TEM, *range(0xD0, 0xD8), _SOI})
# A header has tens of segments; 255 more hold the longest colour profile.
_MAX_SEGMENTS = 1000
# Each scan costs a pass over the whole picture, and a scan of a few bytes is legal. Encoders write about ten.
_MAX_SCANS = 64


def read_header(blob: bytes) -> Header:
    """Size, orientation and kind of coding; lossless, hierarchical and 12-bit JPEGs raise `BadMedia`."""
    frame_marker = frame = 0
    orientation = 1
    at = 2
    for _ in range(_MAX_SEGMENTS):
        if blob[at] != 0xFF:
            # Like the decoders, step over bytes that belong to no segment.
            at = blob.index(b"\xff", at)
        marker = blob[at + 1]
        if marker == 0xFF:
            at += 1
            continue
        if marker in _WITHOUT_LENGTH:
            at += 2
            continue
        if marker == _SOS:
            return _header(blob, frame_marker, frame, orientation, scan=at)
        if marker == _EOI:
            raise BadMedia("JPEG without a picture: it ends before the first scan")
        if marker in _FRAMES or marker in _REFUSED_FRAMES:
            frame_marker, frame = marker, at
        elif marker == _APP1 and blob[at + 4 : at + 10] == b"Exif\0\0":
            orientation = exif_orientation(blob[at + 10 : at + 2 + (blob[at + 2] << 8 | blob[at + 3])])
        at += 2 + (blob[at + 2] << 8 | blob[at + 3])
    raise BadMedia(f"JPEG without a picture in its first {_MAX_SEGMENTS:,} segments")


def decode_direct(blob: bytes, header: Header, buffer: memoryview) -> bool:
    """Write upright RGB into *buffer*; False where the codec refuses the file: Pillow has the last word."""
    if simplejpeg is None:
        return False
    is_upright = header.orientation == 1
    try:
        rgb = simplejpeg.decode_jpeg(blob, "RGB", buffer=buffer if is_upright else None)
    except ValueError:
        return False
    # A smaller picture would leave an older one's pixels behind it in a recycled buffer.
    if rgb.shape != (header.height, header.width, 3):
        return False
    if not is_upright:
        upright_view(buffer, header.width, header.height, header.orientation)[...] = as_pixels(rgb)
    return True


def open_picture(blob: bytes) -> Image.Image:
    """The first picture of the file, not decoded yet; a phone's MPO holds more behind it."""
    return JpegImagePlugin.JpegImageFile(io.BytesIO(blob))


def _header(blob: bytes, marker: int, frame: int, orientation: int, *, scan: int) -> Header:
    if not frame:
        raise BadMedia("JPEG without a frame header before its first scan; the file is damaged")
    if marker in _REFUSED_FRAMES:
        raise BadMedia("lossless or hierarchical JPEG is not accepted; save it as PNG or baseline JPEG")
    precision, components = blob[frame + 4], blob[frame + 9]
    if precision != 8:
        raise BadMedia(f"JPEG with {precision}-bit samples is not accepted; convert it to 8 bits")
    if components not in (1, 3, 4):
        raise BadMedia(f"JPEG with {components} components; accepted are 1 (grey), 3 (colour), 4 (CMYK)")
    if marker in _PROGRESSIVE or blob[scan + 4] < components:
        scans = blob.count(b"\xff\xda", scan)
        if scans > _MAX_SCANS:
            raise BadMedia(f"JPEG with {scans:,} scans; the bound is {_MAX_SCANS}")
    return Header(
        KIND,
        width=blob[frame + 7] << 8 | blob[frame + 8],
        height=blob[frame + 5] << 8 | blob[frame + 6],
        orientation=orientation,
        direct=components != 4,
    )
