"""A pending picture is decoded once, into the caller's buffer, by one thread, and then forgotten."""

from __future__ import annotations

import io
import struct
import sys
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image, PngImagePlugin

from reward_service.errors import BadMedia
from reward_service.media import open_image

BOUND = 1 << 22


def picture(width: int, height: int) -> Image.Image:
    ramp = np.add.outer(np.arange(height), np.arange(width))
    return Image.fromarray(np.stack([ramp, ramp * 3, ramp * 7], axis=-1).astype(np.uint8))


def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def oriented(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags


def decode(blob: bytes) -> bytearray:
    pending = open_image(blob, max_pixels=BOUND)
    buffer = bytearray(pending.nbytes)
    pending.decode_into(memoryview(buffer))
    return buffer


def test_jpeg_is_decoded_without_a_buffer_of_its_size() -> None:
    """A JPEG goes straight into the buffer: nothing near its size is allocated on the way."""
    blob = encode(picture(1024, 1024), "JPEG")
    pending = open_image(blob, max_pixels=BOUND)
    buffer = memoryview(bytearray(pending.nbytes))
    tracemalloc.start()
    try:
        pending.decode_into(buffer)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64_000 < pending.nbytes


def test_a_codec_that_fills_less_than_the_buffer_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pixels of an older picture in a recycled buffer never pass for a part of a new one."""
    blob = encode(picture(64, 48), "JPEG")
    expected = decode(blob)
    smaller = np.zeros((8, 8, 3), np.uint8)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda *_, **__: smaller)
    assert decode(blob) == expected


def test_one_thread_decodes_and_the_others_are_told() -> None:
    """Of many threads that decode one picture at once, exactly one does."""
    pending = open_image(encode(picture(300, 200), "PNG"), max_pixels=BOUND)
    barrier = threading.Barrier(8)

    def attempt(_: int) -> str:
        buffer = memoryview(bytearray(pending.nbytes))
        barrier.wait()
        try:
            pending.decode_into(buffer)
        except RuntimeError as error:
            return str(error)
        return "decoded"

    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(attempt, range(8)))
    assert outcomes.count("decoded") == 1
    assert sum("decoded before" in outcome for outcome in outcomes) == 7


def test_many_threads_decode_many_pictures() -> None:
    """Pictures of all formats decoded side by side come out as they do alone."""
    blobs = [
        encode(
            picture(200 + 7 * n, 150),
            file_format,
            **({"exif": oriented(n + 1)} if file_format != "GIF" else {}),
        )
        for n in range(4)
        for file_format in ("JPEG", "PNG", "WEBP", "TIFF", "GIF")
    ]
    alone = [decode(blob) for blob in blobs]
    with ThreadPoolExecutor(8) as threads:
        for at, pixels in enumerate(threads.map(decode, blobs * 4)):
            assert pixels == alone[at % len(blobs)]


def test_the_file_is_dropped_after_decoding_and_after_failing() -> None:
    """Once decode_into has run, well or badly, the encoded bytes are referenced by nobody."""
    good = encode(picture(100, 80), "BMP")
    bad = good[:-200]
    for blob in (good, bad):
        before = sys.getrefcount(blob)
        pending = open_image(blob, max_pixels=BOUND)
        assert sys.getrefcount(blob) > before
        kept: list[BadMedia] = []
        try:
            pending.decode_into(memoryview(bytearray(pending.nbytes)))
        except BadMedia as error:
            kept.append(error)
        assert bool(kept) == (blob is bad)
        assert sys.getrefcount(blob) == before


def test_the_buffer_is_let_go_after_decoding_and_after_failing() -> None:
    """A kept error does not hold the buffer: its memory can be released at once, whatever went wrong."""
    still = encode(picture(100, 80), "PNG")
    for blob in (
        still,
        still[: len(still) // 2],
        encode(picture(100, 80), "JPEG", exif=oriented(6)),
        encode(picture(100, 80), "JPEG")[:-200],
        encode(picture(600, 400), "BMP")[:-9000],
        encode(picture(100, 80).convert("F"), "TIFF"),
    ):
        pending = open_image(blob, max_pixels=BOUND)
        memory = bytearray(pending.nbytes)
        buffer = memoryview(memory)
        kept: list[BadMedia] = []
        try:
            pending.decode_into(buffer)
        except BadMedia as error:
            kept.append(error)
        buffer.release()
        # Raises BufferError while anything looks at the memory.
        memory.clear()


def test_a_buffer_that_does_not_fit_is_refused_and_costs_nothing() -> None:
    """A wrong or read-only buffer is the caller's mistake: ValueError, and the picture is still there."""
    pending = open_image(encode(picture(10, 10), "PNG"), max_pixels=BOUND)
    for buffer in (bytearray(299), bytearray(301), bytes(300), np.zeros((2, 300), np.uint8)[:, ::2]):
        with pytest.raises(ValueError, match="300 bytes"):
            pending.decode_into(memoryview(buffer))
    pending.decode_into(memoryview(bytearray(300)))


@pytest.mark.parametrize(
    "failure",
    [MemoryError(), OSError("/srv/secret"), struct.error("x"), SyntaxError("bad"), RecursionError("deep")],
)
def test_whatever_a_codec_raises_is_bad_media(monkeypatch: pytest.MonkeyPatch, failure: Exception) -> None:
    """Any exception of a codec becomes `BadMedia`: cause kept, nothing of the server in the text."""

    def fail(*_: object) -> None:
        raise failure

    pending = open_image(encode(picture(10, 10), "PNG"), max_pixels=BOUND)
    monkeypatch.setattr(PngImagePlugin, "PngImageFile", fail)
    with pytest.raises(BadMedia, match="PNG picture cannot be decoded") as caught:
        pending.decode_into(memoryview(bytearray(300)))
    assert caught.value.__cause__ is failure
    assert failure.__traceback__ is None
    assert "/" not in str(caught.value)
