"""Binary PBM, PGM and PPM: header."""

from __future__ import annotations

import io
import re

from PIL import Image, PpmImagePlugin

from ..errors import BadMedia
from .header import Header

KIND = "Netpbm"
BEGINNINGS = (b"P4", b"P5", b"P6")

_GAP = rb"(?:[ \t\r\n\f\v]|#[^\r\n]*[\r\n])+"
_HEADER = re.compile(rb"P(?:4|([56]))" + _GAP + rb"(\d{1,9})" + _GAP + rb"(\d{1,9})(?:" + _GAP + rb"(\d{1,9}))?")
# Pillow scales other maxima in Python, pixel by pixel.
_ACCEPTED_MAXIMA = {b"5": (255, 65535), b"6": (255,)}


def read_header(blob: bytes) -> Header:
    """Size of a binary Netpbm picture with 8-bit samples, or 16-bit grey; others raise `BadMedia`."""
    match = _HEADER.match(blob)
    if match is None:
        raise BadMedia("Netpbm picture with a broken header; write it again")
    kind, width, height, maximum = match.groups()
    if kind is not None:
        accepted = _ACCEPTED_MAXIMA[kind]
        if maximum is None or int(maximum) not in accepted:
            shown = "none" if maximum is None else int(maximum)
            raise BadMedia(f"Netpbm picture with a maximum of {shown}; accepted are {' and '.join(map(str, accepted))}")
    return Header(KIND, int(width), int(height))


def open_picture(blob: bytes) -> Image.Image:
    """The picture, not decoded yet."""
    return PpmImagePlugin.PpmImageFile(io.BytesIO(blob))
