"""Pictures that are refused: by name, by size before a pixel is decoded, and whatever bytes arrive."""

from __future__ import annotations

import contextlib
import io
import struct
import subprocess
import sys
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from reward_service.errors import BadMedia
from reward_service.media import open_image

BOUND = 1 << 20
HEADER = b"\x89PNG\r\n\x1a\n"


def ramp(mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> Image.Image:
    return Image.linear_gradient("L").resize(size).convert(mode)


def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def frames(file_format: str, count: int, **options: Any) -> bytes:
    images = [Image.new("L", (8, 8), shade * 11) for shade in range(count)]
    return encode(images[0], file_format, save_all=True, append_images=images[1:], **options)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *chunks: bytes, depth: int = 8, colour: int = 2) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return HEADER + header + b"".join(chunks) + chunk(b"IEND", b"")


def jpeg_frame(*, marker: int = 0xC0, precision: int = 8, components: int = 3) -> bytes:
    """A JPEG whose frame header is rewritten."""
    blob = encode(ramp(), "JPEG")
    at = blob.index(b"\xff\xc0")
    return (
        blob[: at + 1]
        + bytes([marker])
        + blob[at + 2 : at + 4]
        + bytes([precision])
        + blob[at + 5 : at + 9]
        + bytes([components])
        + blob[at + 10 :]
    )


def tiff16(tag: int, new: int) -> bytes:
    """A 16-bit grey TIFF in which one short tag is rewritten."""
    blob = encode(Image.new("I;16", (8, 8)), "TIFF")
    entry = struct.pack("<HHI", tag, 3, 1)
    assert blob.count(entry) == 1
    at = blob.index(entry) + 8
    return blob[:at] + struct.pack("<I", new) + blob[at + 4 :]


def many_scans() -> bytes:
    blob = encode(ramp(), "JPEG", progressive=True)
    return blob[:-2] + blob[blob.rindex(b"\xff\xda") : -2] * 100 + blob[-2:]


def decode(blob: bytes, max_pixels: int = BOUND) -> tuple[int, int]:
    pending = open_image(blob, max_pixels=max_pixels)
    pending.decode_into(memoryview(bytearray(pending.nbytes)))
    return pending.width, pending.height


REFUSED = {
    "empty": (b"", r"is empty \(0 bytes\)"),
    "rubbish": (b"\x01\x02\x03\x04", "begins with 01 02 03 04"),
    "GIF, animated": (frames("GIF", 12), "animated GIF with 12 frames; send one frame, or the clip as video"),
    "GIF, very animated": (frames("GIF", 2)[:-1] * 1001, "animated GIF with"),
    "GIF, frame past its canvas": (
        b"GIF89a\4\0\4\0" + frames("GIF", 1)[10:],
        "does not fit its canvas of 4 × 4",
    ),
    "GIF, no frame": (frames("GIF", 1)[:13] + b";", "without a frame"),
    "PNG, animated": (frames("PNG", 3), "animated PNG with 3 frames"),
    "WebP, animated": (frames("WEBP", 4), "animated WebP with 4 frames"),
    "TIFF, pages": (frames("TIFF", 2), "several pages"),
    "TIFF, big": (b"II+\0\x08\0\0\0" + bytes(200), "BigTIFF"),
    "TIFF, float": (encode(ramp("F"), "TIFF"), "'F' is not accepted; convert it to 8-bit"),
    "TIFF, 32 bits": (encode(ramp("I"), "TIFF"), "'I' is not accepted"),
    "TIFF, Lab": (encode(ramp().convert("LAB"), "TIFF"), "'LAB' is not accepted"),
    "TIFF, 12 bits": (tiff16(258, 12), "12-bit samples"),
    "TIFF, white is 0": (tiff16(262, 0), "white as 0"),
    "TIFF, fax": (encode(ramp("1"), "TIFF", compression="group4"), "compression 4 is not accepted"),
    "TIFF, JPEG": (encode(ramp(), "TIFF", compression="jpeg"), "compression 7 is not accepted"),
    "JPEG, lossless": (jpeg_frame(marker=0xC3), "lossless or hierarchical"),
    "JPEG, 12 bits": (jpeg_frame(precision=12), "12-bit samples"),
    "JPEG, 2 components": (jpeg_frame(components=2), "2 components"),
    "JPEG, scans": (many_scans(), "110 scans; the bound is 64"),
    "JPEG, no picture": (b"\xff\xd8\xff\xe0\0\x04ab\xff\xd9", "before the first scan"),
    "PNG, 16 bits with a clear colour": (
        png(4, 4, chunk(b"tRNS", bytes(6)), chunk(b"IDAT", zlib.compress(bytes(100))), depth=16),
        "transparent colour",
    ),
    "BMP, run lengths": (
        encode(ramp("P"), "BMP")[:30] + b"\1" + encode(ramp("P"), "BMP")[31:],
        "compressed BMP",
    ),
    "PPM, text": (b"P3 1 1 255 0 0 0", "plain-text PPM"),
    "PPM, 10 bits": (b"P6 1 1 1023 " + bytes(6), "maximum of 1023; accepted are 255"),
    "PPM, no maximum": (b"P5 1 1 ", "maximum of none; accepted are 255 and 65535"),
    "PFM": (b"Pf 1 1 -1.0\n" + bytes(4), "32-bit samples"),
    "AVIF": (b"\0\0\0\x20ftypavif" + bytes(20), "this is an AVIF picture"),
    "HEIF": (b"\0\0\0\x18ftypheic" + bytes(12), "this is a HEIF picture"),
    "JPEG 2000": (encode(ramp(), "JPEG2000"), "this is a JPEG 2000 picture"),
    "EPS": (encode(ramp(), "EPS"), "this is PostScript"),
    "PDF": (encode(ramp(), "PDF"), "this is a PDF"),
    "PSD": (b"8BPS\0\1", "this is a Photoshop file"),
    "SVG": (b"<svg xmlns=''>", "this is an SVG drawing"),
    "MP4": (b"\0\0\0\x20ftypisom" + bytes(20), "this is an MP4 or MOV video"),
    "base64 twice": (b"iVBORw0KGgoAAAANSUhEUg", "base64 applied twice"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_accepted_is_named(name: str) -> None:
    """Each refusal of the docs is a short `BadMedia` that says what the file is."""
    blob, said = REFUSED[name]
    with pytest.raises(BadMedia, match=said) as caught:
        decode(blob)
    assert len(str(caught.value)) < 250


def test_an_animation_of_one_frame_is_a_picture() -> None:
    """An APNG or WebP animation that holds a single frame is accepted."""
    still = encode(ramp(), "PNG")
    assert decode(still[:33] + chunk(b"acTL", struct.pack(">II", 1, 0)) + still[33:]) == (40, 30)
    assert decode(frames("GIF", 1)) == (8, 8)
    assert decode(frames("WEBP", 1)) == (8, 8)


def huge(side: int) -> dict[str, bytes]:
    """Files of a few hundred bytes whose headers promise *side* × *side* pixels."""
    jpeg = encode(ramp(), "JPEG")
    at = jpeg.index(b"\xff\xc0") + 5
    tiff = encode(ramp(), "TIFF")
    for tag, old in ((256, 40), (257, 30)):
        for kind in (3, 4):
            entry = struct.pack("<HHI", tag, kind, 1)
            tiff = tiff.replace(entry + struct.pack("<I", old), struct.pack("<HHII", tag, 4, 1, side))
    webp = b"VP8X" + struct.pack("<IB3x", 10, 0) + (side - 1).to_bytes(3, "little") * 2
    return {
        "PNG": png(side, side, chunk(b"IDAT", zlib.compress(bytes(1000)))),
        "JPEG": jpeg[:at] + struct.pack(">HH", side, side) + jpeg[at + 4 :],
        "JPEG CMYK": jpeg[:at] + struct.pack(">HHB", side, side, 4) + jpeg[at + 5 :],
        "WEBP": b"RIFF" + struct.pack("<I", len(webp) + 4) + b"WEBP" + webp,
        "GIF": b"GIF89a" + struct.pack("<HH", side, side) + frames("GIF", 1)[10:],
        "BMP": encode(ramp(), "BMP")[:18] + struct.pack("<ii", side, -side) + encode(ramp(), "BMP")[26:],
        "TIFF": tiff,
        "PPM": f"P6\n# comment\n{side} {side}\n255\n".encode() + bytes(1000),
    }


@pytest.mark.parametrize("file_format", sorted(huge(9000)))
def test_pixels_are_bounded_by_the_header(file_format: str) -> None:
    """A header past the bound is refused with the sizes and the bound; at the bound it is not."""
    blob = huge(9000)[file_format]
    with pytest.raises(BadMedia, match=r"9,000 × 9,000 = 81,000,000 pixels; the bound is 80,999,999"):
        open_image(blob, max_pixels=80_999_999)
    assert open_image(blob, max_pixels=81_000_000).nbytes == 243_000_000


def test_bombs_leave_memory_flat() -> None:
    """Huge headers, text that unpacks to megabytes and endless pixel data cost next to no memory."""
    program = """
import resource, sys, zlib
sys.path.insert(0, sys.argv[1])
from test_media_refusals import BadMedia, chunk, decode, huge, png, ramp, encode

def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

for warm in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
    decode(encode(ramp(), warm))
text = zlib.compress("\\U0001f4a3".encode() * 250_000)
chunks = [chunk(b"iTXt", b"k%d\\0\\1\\0\\0\\0" % n + text) for n in range(60)]
pixels = zlib.compressobj()
endless = b"".join([*(pixels.compress(bytes(1 << 20)) for _ in range(200)), pixels.flush()])
before = peak_mib()
for blob in huge(30_000).values():
    try:
        decode(blob)
        sys.exit("accepted")
    except BadMedia:
        pass
headers = peak_mib() - before
decode(png(1, 1, *chunks, chunk(b"iCCP", b"p\\0\\0" + endless), chunk(b"IDAT", zlib.compress(bytes(4)))))
texts = peak_mib() - before
decode(png(1, 1, chunk(b"IDAT", endless)))
print(headers, texts, peak_mib() - before)
"""
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", program, here], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert max(map(float, done.stdout.split())) < 10, done.stdout


def test_tiffs_that_claim_too_much_are_refused() -> None:
    """TIFF tags may not claim more bytes than the file has, millions of strips, or giant tiles."""

    def tiff(*entries: tuple[int, int, int, int]) -> bytes:
        size = [(256, 3, 1, 8), (257, 3, 1, 8), *entries]
        directory = b"".join(struct.pack("<HHII", *entry) for entry in sorted(size))
        return b"II*\0" + struct.pack("<IH", 8, len(size)) + directory + bytes(4) + bytes(600_000)

    for entry, said in (
        ((700, 1, 700_000, 8), "claim 700,000 bytes, the file has 600,"),
        ((273, 4, 100_000, 8), "100,000 strips or tiles; the bound is 65,536"),
    ):
        with pytest.raises(BadMedia, match=said):
            open_image(tiff(entry), max_pixels=BOUND)
    with pytest.raises(BadMedia, match="tiles of 60,000 × 60,000"):
        open_image(tiff((322, 3, 1, 60_000), (323, 3, 1, 60_000)), max_pixels=BOUND)


def test_files_of_countless_parts_are_refused() -> None:
    """Headers are walked for a bounded number of steps, whatever the file is made of."""
    for blob in (
        HEADER + png(1, 1)[8:33] + chunk(b"tEXt", b"") * 200_000,
        b"\xff\xd8" + b"\xff" * 100_000,
        b"\xff\xd8" + b"\xff\xe5\0\2" * 100_000,
        b"GIF89a\1\0\1\0\0\0\0!\xfe" + b"\1a" * 200_000,
        frames("GIF", 2)[:-1] + b",\0\0\0\0\1\0\1\0\0\2\0" * 100_000,
    ):
        with pytest.raises(BadMedia, match=r"more than|in its first"):
            open_image(blob, max_pixels=BOUND)


def test_a_file_that_states_two_sizes_is_refused() -> None:
    """Where the codec sees another size than the header that was checked, nothing is decoded."""
    pixels = chunk(b"IDAT", zlib.compress(bytes(100_000)))
    for second in ((9, 8), (8, 9), (4, 4), (90_000, 90_000)):
        with pytest.raises(BadMedia, match="states two sizes"):
            decode(png(8, 8, png(*second)[8:33], pixels))
    small, large = encode(ramp(size=(8, 8)), "JPEG"), encode(ramp(size=(80, 80)), "JPEG")
    at, frame = small.index(b"\xff\xc0"), large[large.index(b"\xff\xc0") :][:19]
    for blob in (small[:at] + frame + small[at:], small[: at + 19] + frame + small[at + 19 :]):
        with pytest.raises(BadMedia):
            decode(blob)


def test_pillows_own_bound_holds_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past Pillow's bound, which would warn while it decodes, all formats but JPEG are refused first."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for file_format in ("PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
            with pytest.raises(BadMedia, match="the bound is 1,000"):
                decode(encode(ramp(), file_format))
        assert decode(encode(ramp(), "JPEG")) == (40, 30)
    assert warned == []


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (0, 0)])
def test_a_picture_without_pixels_is_refused(size: tuple[int, int]) -> None:
    """Zero width or height is refused by the header."""
    with pytest.raises(BadMedia, match="is empty"):
        decode(png(*size))
    with pytest.raises(BadMedia, match="is empty"):
        decode(f"P6 {size[0]} {size[1]} 255 ".encode())


def valid_files() -> list[bytes]:
    tags = Image.Exif()
    tags[0x0112] = 6
    deep = np.arange(1200, dtype=np.uint16).reshape(30, 40) * 50
    return [
        encode(ramp(), "JPEG"),
        encode(ramp(), "JPEG", progressive=True, exif=tags),
        encode(ramp("CMYK"), "JPEG", exif=tags),
        encode(ramp("RGBA"), "PNG", exif=tags),
        encode(ramp("P"), "PNG", transparency=3),
        encode(Image.fromarray(deep), "PNG"),
        encode(ramp(), "WEBP", exif=tags),
        encode(ramp("RGBA"), "WEBP", lossless=True),
        encode(ramp(), "GIF"),
        encode(ramp(), "BMP"),
        encode(ramp("P"), "BMP"),
        encode(ramp(), "PPM"),
        encode(Image.fromarray(deep), "TIFF"),
        *(encode(ramp(), "TIFF", compression=c, exif=tags) for c in (None, "tiff_lzw", "tiff_deflate")),
    ]


VALID = valid_files()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(VALID), st.data())
def test_a_damaged_file_is_a_picture_or_bad_media(blob: bytes, data: st.DataObject) -> None:
    """Valid files with bytes overwritten, removed, inserted or cut off decode, or raise `BadMedia`."""
    damaged = bytearray(blob)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged)))
        damaged[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged))) :]
    with contextlib.suppress(BadMedia):
        decode(bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([b"", *{blob[:n] for blob in VALID for n in (3, 8, 16, 30)}]), st.binary(max_size=200))
def test_any_bytes_are_a_picture_or_bad_media(beginning: bytes, rest: bytes) -> None:
    """Random bytes, bare or behind a valid beginning, decode or raise `BadMedia`."""
    with contextlib.suppress(BadMedia):
        decode(beginning + rest)
