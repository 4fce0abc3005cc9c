"""From any Pillow mode to upright 8-bit RGB in the caller's buffer, a strip at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import BadMedia

# Three bytes moved as one item: turning a picture so is twice as fast as with an axis for the channels.
_PIXEL = np.dtype("V3")
# Strips stay in the processor's cache and need no temporary of the picture's size.
_STRIP_PIXELS = 1 << 17
_SIXTEEN_BIT_GREY = frozenset({"I;16", "I;16L", "I;16B"})
# Mode I holds 16 bits where it comes from a Netpbm picture (or a PNG, in older Pillows).
_SIXTEEN_BIT_SOURCES = frozenset({"PPM", "PNG"})
_PLAIN = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
_WITH_ALPHA = frozenset({"LA", "PA", "RGBA", "RGBa"})


def upright_view(buffer: memoryview, width: int, height: int, orientation: int) -> NDArray[np.void]:
    """A view of *buffer* to write the stored rows into, so that the buffer holds the upright picture.

    *width* and *height* are those of the stored picture; the view has shape (height, width), its
    items are whole pixels (`as_pixels` makes what can be assigned to it).
    """
    turned = orientation > 4
    pixels = np.frombuffer(buffer, dtype=_PIXEL).reshape((width, height) if turned else (height, width))
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels.T if turned else pixels


def as_pixels(rgb: NDArray[np.uint8]) -> NDArray[np.void]:
    """A contiguous (height, width, 3) array as (height, width) whole pixels, without a copy."""
    height, width, _ = rgb.shape
    return rgb.view(_PIXEL).reshape(height, width)


def write_rgb(image: Image.Image, target: NDArray[np.void]) -> None:
    """Write a loaded picture as RGB into a view of `upright_view`; a mode without a rule is `BadMedia`."""
    is_grey16 = image.mode in _SIXTEEN_BIT_GREY or (image.mode == "I" and image.format in _SIXTEEN_BIT_SOURCES)
    if not is_grey16 and image.mode not in _PLAIN and image.mode not in _WITH_ALPHA:
        raise BadMedia(
            f"{image.format} picture with pixels of kind {image.mode!r} is not accepted; "
            "convert it to 8-bit grey, RGB or RGBA"
        )
    to_rgb = _from_grey16 if is_grey16 else _from_eight_bits
    width, height = image.size
    rows = max(1, _STRIP_PIXELS // width)
    if rows >= height:
        target[...] = as_pixels(to_rgb(image))
        return
    for top in range(0, height, rows):
        bottom = min(top + rows, height)
        target[top:bottom] = as_pixels(to_rgb(image.crop((0, top, width, bottom))))


def _from_eight_bits(strip: Image.Image) -> NDArray[np.uint8]:
    if strip.mode in _WITH_ALPHA or strip.has_transparency_data:
        return np.asarray(_on_white(strip))
    return np.asarray(strip if strip.mode == "RGB" else strip.convert("RGB"))


def _on_white(strip: Image.Image) -> Image.Image:
    if strip.mode != "RGBA":
        strip = strip.convert("RGBA")
    canvas = Image.new("RGB", strip.size, "white")
    canvas.paste(strip, mask=strip)
    return canvas


def _from_grey16(strip: Image.Image) -> NDArray[np.uint8]:
    samples = np.asarray(strip)
    # The upper byte, as codecs do for 16-bit colour.
    grey = (samples >> 8).astype(np.uint8)
    transparent = strip.info.get("transparency")
    if transparent is not None:
        grey[samples == transparent] = 255
    return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
