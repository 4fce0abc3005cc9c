"""A picture in two steps: the header first, so that bounds hold, then the pixels into a given buffer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from PIL import Image

from ..errors import BadMedia
from . import bmp, gif, jpeg, netpbm, png, tiff, webp
from .header import Header
from .pixels import upright_view, write_rgb
from .refusals import beginning, undecodable

ACCEPTED = "JPEG, PNG, WebP, GIF, BMP, TIFF, binary PBM/PGM/PPM"


class _Format(NamedTuple):
    kind: str
    read_header: Callable[[bytes], Header]
    # Plugins are built directly: Image.open would pick by itself, and warn where its own bound is passed.
    open_picture: Callable[[bytes], Image.Image]


_WEBP = _Format(webp.KIND, webp.read_header, webp.open_picture)
_BY_BEGINNING = tuple(
    (module.BEGINNINGS, _Format(module.KIND, module.read_header, module.open_picture))
    for module in (jpeg, png, gif, tiff, netpbm, bmp)
)


class PendingImage:
    """A picture whose header was accepted and whose pixels wait for a buffer.

    width, height: size of the upright picture. nbytes: ``width * height * 3``.
    """

    __slots__ = ("_source", "height", "nbytes", "width")

    def __init__(self, blob: bytes, file_format: _Format, header: Header) -> None:
        self.width, self.height = header.upright_size
        self.nbytes = self.width * self.height * 3
        # A list, because pop() lets exactly one thread have it.
        self._source = [(blob, file_format, header)]

    def decode_into(self, buffer: memoryview) -> None:
        """Write rows of 8-bit RGB, top left first, into a writable *buffer* of exactly `nbytes` bytes.

        Works once: the encoded bytes and *buffer* are let go, in failure too. Raises `BadMedia` if the
        file cannot be decoded (*buffer* then holds rubbish), ValueError for a buffer that does not fit,
        RuntimeError when called again.
        """
        if buffer.readonly or not buffer.c_contiguous or buffer.nbytes != self.nbytes:
            raise ValueError(
                f"decode_into needs a writable, contiguous buffer of {self.nbytes} bytes; "
                f"this one has {buffer.nbytes}{' and is read-only' if buffer.readonly else ''}"
            )
        failure = _decode(*self._take(), buffer)
        if failure is not None:
            try:
                raise failure
            finally:
                # The error's traceback holds this frame, which must not hold the error.
                del failure

    def _take(self) -> tuple[bytes, _Format, Header]:
        try:
            return self._source.pop()
        except IndexError:
            raise RuntimeError("this picture was decoded before; open it again") from None


def open_image(blob: bytes, *, max_pixels: int) -> PendingImage:
    """Read the header of an encoded picture and check it; no pixel is decoded.

    Raises `BadMedia` if the format is not accepted, the header is damaged, the picture moves or has
    several pages, or it has no pixels or more than *max_pixels*.
    """
    file_format = _recognise(blob)
    try:
        header = file_format.read_header(blob)
    except (IndexError, ValueError, struct.error) as error:
        if isinstance(error, BadMedia):
            raise
        raise BadMedia(f"{file_format.kind} picture with a truncated or damaged header") from None
    _check_size(header, max_pixels)
    return PendingImage(blob, file_format, header)


def _recognise(blob: bytes) -> _Format:
    for beginnings, file_format in _BY_BEGINNING:
        if blob.startswith(beginnings):
            return file_format
    if webp.accepts(blob):
        return _WEBP
    if not blob:
        raise BadMedia("the picture is empty (0 bytes)")
    raise BadMedia(f"not a picture that is accepted ({ACCEPTED}): {beginning(blob)}")


def _check_size(header: Header, max_pixels: int) -> None:
    width, height = header.upright_size
    if width <= 0 or height <= 0:
        raise BadMedia(f"{header.kind} picture of {width} × {height} pixels is empty")
    # Past its own bound Pillow warns, and then refuses, while it decodes.
    bound = max_pixels if header.direct else min(max_pixels, Image.MAX_IMAGE_PIXELS or max_pixels)
    if width * height > bound:
        raise BadMedia(
            f"{header.kind} picture of {width:,} × {height:,} = {width * height:,} pixels; "
            f"the bound is {bound:,}, send it smaller"
        )


def _decode(blob: bytes, file_format: _Format, header: Header, buffer: memoryview) -> BadMedia | None:
    """Fill *buffer*, or return what is wrong: a returned error keeps no frame and so no picture alive."""
    try:
        if not (header.direct and jpeg.decode_direct(blob, header, buffer)):
            _decode_with_pillow(blob, file_format, header, buffer)
    except Exception as error:
        return undecodable(f"{header.kind} picture", error)
    return None


def _decode_with_pillow(blob: bytes, file_format: _Format, header: Header, buffer: memoryview) -> None:
    if header.kind == tiff.KIND:
        # Pillow turns TIFFs upright by itself.
        header = Header(tiff.KIND, *header.upright_size)
    image = file_format.open_picture(blob)
    # What follows is bounded by the size that was checked, so the codec must agree with it.
    if image.size != (header.width, header.height):
        raise BadMedia(f"{header.kind} picture that states two sizes; the file is damaged")
    image.load()
    write_rgb(image, upright_view(buffer, header.width, header.height, header.orientation))
