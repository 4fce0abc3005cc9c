"""Images and videos in every form that callers hold, as the encoded bytes that travel."""

from __future__ import annotations

import io
import os
import threading
from typing import Any

from PIL import Image, ImageOps

_EXIF_ORIENTATION = 0x0112


class Media:
    """One image or video of a call; equal objects of a call share one `Media`, so they are encoded once.

    `value` is what `encode` works on: bytes (sent as they are), a path, a PIL image, or an array.
    """

    __slots__ = ("origin", "value", "where")

    def __init__(self, origin: object, value: Any, where: str) -> None:
        # Keeps the caller's object alive: identity tells equal media of one call.
        self.origin = origin
        self.value = value
        self.where = where


def image_media(image: object, where: str) -> Media:
    """Check *image* and take it off its device; raises TypeError or ValueError starting with *where*.

    Runs in the caller's thread: a copy from a GPU has to be queued behind the work on the caller's stream.
    """
    if isinstance(image, (bytes, bytearray, memoryview)):
        return Media(image, bytes(image), where)
    if isinstance(image, (str, os.PathLike)):
        return Media(image, os.fspath(image), where)
    if isinstance(image, Image.Image):
        if 0 in image.size:
            raise ValueError(f"{where}: the image is empty, size {image.size}")
        return Media(image, image, where)
    if all(hasattr(image, name) for name in ("detach", "cpu", "numpy")):
        return Media(image, _tensor(image, where), where)
    if hasattr(image, "__array_interface__"):
        return Media(image, _hwc_array(image, where), where)
    raise TypeError(
        f"{where}: cannot send a {type(image).__name__}; give a PIL image, a path, encoded bytes, "
        "a numpy HWC uint8 array or a torch CHW tensor"
    )


def _tensor(tensor: Any, where: str) -> Any:
    """CHW on any device → HWC uint8 array, or CHW float array whose arithmetic is left to the encoder."""
    shape = tuple(tensor.shape)
    if len(shape) != 3 or shape[0] not in (1, 3, 4) or 0 in shape:
        raise ValueError(f"{where}: a tensor must be (channels, height, width) with 1, 3 or 4 channels, not {shape}")
    on_host = tensor.detach().cpu()
    if _is_floating(on_host):
        # numpy has no bfloat16.
        on_host = on_host.float()
    array = on_host.numpy()
    if array.dtype.kind != "f" and str(array.dtype) != "uint8":
        raise TypeError(f"{where}: a tensor must be float in [0, 1] or uint8, not {array.dtype} of shape {shape}")
    return array.transpose(1, 2, 0)


def _is_floating(tensor: Any) -> bool:
    known = getattr(tensor, "is_floating_point", None)
    return bool(known()) if callable(known) else False


def _hwc_array(array: Any, where: str) -> Any:
    shape = tuple(array.shape)
    if str(array.dtype) != "uint8":
        raise TypeError(f"{where}: an array must be uint8, not {array.dtype} of shape {shape}; scale to 0…255")
    if 0 in shape or not (len(shape) == 2 or (len(shape) == 3 and shape[2] in (1, 3, 4))):
        raise ValueError(f"{where}: an array must be (height, width) or (height, width, 1|3|4), not {shape}")
    return array


class Encoder:
    """Encodes `Media`; safe in several threads at once.

    JPEG at *quality* is lossy; PNG and WEBP are lossless, at their fastest setting. Every image is sent as
    RGB, alpha composited on white and EXIF orientation applied, which is what scorers see anyway.
    """

    def __init__(self, image_format: str, quality: int) -> None:
        self._format = image_format
        self._options: dict[str, Any] = {
            "JPEG": {"quality": quality},
            "PNG": {"compress_level": 1},
            "WEBP": {"lossless": True, "quality": 0, "method": 0},
        }[image_format]
        # Pillow decodes an opened file on first use, and not safely from two threads.
        self._loading = threading.Lock()

    def encode(self, media: Media) -> bytes:
        """The bytes to send; raises OSError for an unreadable file, ValueError for unusable pixels."""
        value = media.value
        if isinstance(value, bytes):
            return value
        if isinstance(value, str):
            return _read(value, media.where)
        try:
            if isinstance(value, Image.Image):
                with self._loading:
                    value.load()
                return self._save(_rgb(value))
            return self._save(_rgb(Image.fromarray(_to_uint8(value))))
        except (OSError, ValueError) as error:
            # OSError is Pillow's word for a truncated file, and for sides beyond the format's maximum.
            raise ValueError(f"{media.where}: cannot encode the image as {self._format}: {error}") from error

    def _save(self, image: Image.Image) -> bytes:
        target = io.BytesIO()
        image.save(target, self._format, **self._options)
        return target.getvalue()


def _read(path: str, where: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise OSError(error.errno, f"{where}: {error.strerror}", path) from error


def _to_uint8(array: Any) -> Any:
    if array.dtype.kind == "f":
        # Without numpy's name in scope: only NaN differs from itself.
        if (array != array).any():
            raise ValueError("it holds NaN pixels")
        array = (array.clip(0.0, 1.0) * 255.0).round().astype("uint8")
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def _rgb(image: Image.Image) -> Image.Image:
    if image.getexif().get(_EXIF_ORIENTATION, 1) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode == "La":
        # Pillow converts premultiplied grey to nothing but LA.
        image = image.convert("LA")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        paper.alpha_composite(layer)
        return paper.convert("RGB")
    if image.mode.startswith("I;16"):
        # Pillow would clip 16 bits at 255 instead of scaling them.
        return image.convert("I").point(lambda value: value / 256).convert("L").convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")
