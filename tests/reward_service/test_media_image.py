"""Pictures from clients become the same upright RGB pixels that an independent reading of the file gives."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from reward_service.errors import BadMedia
from reward_service.media import open_image

BOUND = 1 << 22
Pixels = NDArray[np.uint8]


def noise(width: int, height: int, channels: int = 3, seed: int = 0) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def photo(width: int, height: int) -> Image.Image:
    return Image.fromarray(noise(9, 7)).resize((width, height), Image.Resampling.BICUBIC)


def encode(image: Image.Image, file_format: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def decode(blob: bytes) -> Pixels:
    pending = open_image(blob, max_pixels=BOUND)
    # Not zeroes: bytes that are left unwritten must show.
    buffer = bytearray(b"\xa5" * pending.nbytes)
    pending.decode_into(memoryview(buffer))
    return np.frombuffer(buffer, np.uint8).reshape(pending.height, pending.width, 3)


def with_pillow(blob: bytes) -> Pixels:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(blob))).convert("RGB"))


def on_white(colour: Any, alpha: Any) -> Pixels:
    colour, alpha = np.asarray(colour, float), np.asarray(alpha, float)
    return np.rint((colour * alpha + 255 * (255 - alpha)) / 255).astype(np.uint8)


def grey(plane: Any) -> Pixels:
    return np.repeat(np.asarray(plane, np.uint8)[:, :, np.newaxis], 3, axis=2)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(size: tuple[int, int], depth: int, colour: int, rows: list[bytes], *before: bytes) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", *size, depth, colour, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(before) + data + chunk(b"IEND", b"")


def bmp_with_alpha(rgba: Pixels) -> bytes:
    height, width, _ = rgba.shape
    masks = struct.pack("<4I", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    header = struct.pack("<IiiHHIIiiII", 56, width, -height, 1, 32, 3, rgba.nbytes, 0, 0, 0, 0) + masks
    pixels = rgba[..., [2, 1, 0, 3]].tobytes()
    return struct.pack("<2sIHHI", b"BM", 70 + len(pixels), 0, 0, 70) + header + pixels


def premultiplied_tiff() -> bytes:
    """A TIFF that declares its samples to be multiplied by alpha: black, half as opaque as noise."""
    alpha = noise(40, 30, 1)
    black = np.zeros((30, 40, 3), np.uint8)
    blob = encode(Image.fromarray(np.concatenate([black, alpha // 2], -1), "RGBA"), "TIFF")
    declared = struct.pack("<HHI", 338, 3, 1)
    at = blob.index(declared) + len(declared)
    return blob[:at] + b"\1" + blob[at + 1 :]


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


@pytest.mark.parametrize("size", [(64, 48), (1, 1), (33, 47), (7, 100), (601, 300)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(
    "options",
    [
        {"subsampling": 0},
        {"subsampling": 1},
        {"subsampling": 2, "quality": 30},
        {"progressive": True},
        {"keep_rgb": True},
        {"restart_marker_rows": 1},
    ],
    ids=str,
)
def test_jpeg_pixels_are_those_of_pillow(size: tuple[int, int], mode: str, options: dict[str, Any]) -> None:
    """The fast JPEG path gives Pillow's pixels, for every subsampling, size and kind of JPEG."""
    blob = encode(photo(*size).convert(mode), "JPEG", **options)
    np.testing.assert_array_equal(decode(blob), with_pillow(blob))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(50, 30), (700, 400)], ids=["one-strip", "strips"])
@pytest.mark.parametrize("file_format", ["JPEG", "CMYK JPEG", "PNG", "WEBP", "TIFF"])
def test_exif_orientation_is_applied(file_format: str, size: tuple[int, int], orientation: int) -> None:
    """Each of the eight orientations gives the upright size from the header, and the upright pixels."""
    mode = "CMYK" if file_format.startswith("CMYK") else "RGB"
    options: dict[str, Any] = {"lossless": True} if file_format == "WEBP" else {}
    if file_format == "TIFF":
        options["compression"] = "tiff_lzw"
    blob = encode(photo(*size).convert(mode), file_format.removeprefix("CMYK "), exif=exif(orientation), **options)
    upright = size if orientation < 5 else size[::-1]
    pending = open_image(blob, max_pixels=BOUND)
    assert (pending.width, pending.height, pending.nbytes) == (*upright, size[0] * size[1] * 3)
    np.testing.assert_array_equal(decode(blob), with_pillow(blob))


def test_exif_behind_the_pixels_of_a_png_counts() -> None:
    """An eXIf chunk after the image data is legal, and its orientation is applied."""
    blob = encode(photo(50, 30), "PNG")
    turned = blob[:-12] + chunk(b"eXIf", exif(6)) + blob[-12:]
    np.testing.assert_array_equal(decode(turned), np.rot90(decode(blob), -1))


@pytest.mark.parametrize("tags", [exif(0), exif(9), exif(6)[:14], b"Exif\0\0", b"Exif\0\0rubbish" * 9])
def test_broken_exif_means_upright(tags: bytes) -> None:
    """EXIF data that is damaged or holds no valid orientation does not cost the picture."""
    blob = encode(photo(50, 30), "JPEG", exif=tags)
    np.testing.assert_array_equal(decode(blob), decode(encode(photo(50, 30), "JPEG")))


def alpha_files() -> dict[str, tuple[bytes, Pixels]]:
    rgba = noise(40, 30, 4)
    colour, alpha = rgba[..., :3], rgba[..., 3:]
    over = on_white(colour, alpha)
    image = Image.fromarray(rgba, "RGBA")
    la = noise(40, 30, 2, seed=1)
    palette = noise(1, 256)[:, 0]
    index = noise(40, 30, 1, seed=2)[..., 0]
    indexed = Image.fromarray(index)
    indexed.putpalette(palette.tobytes())
    opacity = np.random.default_rng(3).integers(0, 256, 256, dtype=np.uint8)
    one_clear = np.where(np.arange(256) == 7, 0, 255)
    rgb_key = noise(40, 30, 3, seed=4)
    rgb_key[5, 5] = (1, 2, 3)
    keyed = rgb_key.copy()
    keyed[5, 5] = 255
    large = noise(700, 500, 4, seed=5)
    return {
        "PNG RGBA": (encode(image, "PNG"), over),
        "PNG RGBA in strips": (
            encode(Image.fromarray(large, "RGBA"), "PNG"),
            on_white(large[..., :3], large[..., 3:]),
        ),
        "PNG LA": (encode(Image.fromarray(la, "LA"), "PNG"), grey(on_white(la[..., 0], la[..., 1]))),
        "PNG palette, alpha each": (
            encode(indexed, "PNG", transparency=opacity.tobytes()),
            on_white(palette[index], opacity[index][..., None]),
        ),
        "PNG palette, one clear": (
            encode(indexed, "PNG", transparency=7),
            on_white(palette[index], one_clear[index][..., None]),
        ),
        "PNG RGB, one clear": (encode(Image.fromarray(rgb_key), "PNG", transparency=(1, 2, 3)), keyed),
        "GIF, one clear": (
            encode(indexed, "GIF", transparency=7, optimize=False),
            on_white(palette[index], one_clear[index][..., None]),
        ),
        "WebP": (encode(image, "WEBP", lossless=True, exact=True), over),
        "TIFF": (encode(image, "TIFF"), over),
        "TIFF LA": (encode(Image.fromarray(la, "LA"), "TIFF"), grey(on_white(la[..., 0], la[..., 1]))),
        "TIFF RGBA, premultiplied": (premultiplied_tiff(), 255 - np.repeat(noise(40, 30, 1) // 2, 3, -1)),
        "BMP with an alpha mask": (bmp_with_alpha(rgba), over),
    }


@pytest.mark.parametrize("name", sorted(alpha_files()))
def test_alpha_is_composited_on_white(name: str) -> None:
    """Every way to be transparent ends as the picture over white, rounded to the nearest value."""
    blob, expected = alpha_files()[name]
    np.testing.assert_array_equal(decode(blob), expected)


@pytest.mark.parametrize(("depth", "clear"), [(1, 0), (1, 1), (2, 2), (4, 9), (8, 200)])
def test_the_clear_value_of_a_grey_png_becomes_white(depth: int, clear: int) -> None:
    """Grey PNGs of 1 to 8 bits are widened to the full range, and the value that tRNS names is white."""
    most = (1 << depth) - 1
    values = np.arange(64).reshape(4, 16) * 37 % (most + 1)
    bits = (values[..., None] >> np.arange(depth)[::-1]) & 1
    rows = [np.packbits(row.ravel().astype(np.uint8)).tobytes() for row in bits]
    widened = values * 255 // most
    plain = png((16, 4), depth, 0, rows)
    np.testing.assert_array_equal(decode(plain), grey(widened))
    keyed = png((16, 4), depth, 0, rows, chunk(b"tRNS", struct.pack(">H", clear)))
    np.testing.assert_array_equal(decode(keyed), grey(np.where(values == clear, 255, widened)))


def test_sixteen_bits_keep_their_upper_byte() -> None:
    """16-bit grey, grey with alpha and colour are reduced to the upper byte, never clipped."""
    samples = np.random.default_rng(0).integers(0, 1 << 16, (500, 600), dtype=np.uint16)
    samples[0, :4] = (0, 255, 256, 65535)
    expected = grey(samples >> 8)
    big = samples.astype(">u2")
    np.testing.assert_array_equal(decode(encode(Image.fromarray(samples), "PNG")), expected)
    np.testing.assert_array_equal(decode(encode(Image.fromarray(samples), "TIFF")), expected)
    np.testing.assert_array_equal(decode(encode(Image.frombytes("I;16B", (600, 500), big.tobytes()), "TIFF")), expected)
    np.testing.assert_array_equal(decode(b"P5 600 500 65535\n" + big.tobytes()), expected)
    keyed = png((600, 500), 16, 0, [row.tobytes() for row in big], chunk(b"tRNS", struct.pack(">H", 256)))
    np.testing.assert_array_equal(decode(keyed), grey(np.where(samples == 256, 255, samples >> 8)))
    pairs = np.stack([samples[:2], samples[2:4]], axis=-1).astype(">u2")
    la = png((600, 2), 16, 4, [row.tobytes() for row in pairs])
    np.testing.assert_array_equal(decode(la), grey(on_white(samples[:2] >> 8, samples[2:4] >> 8)))
    colour = np.stack([samples[:2], samples[2:4], samples[4:6]], axis=-1).astype(">u2")
    rgb = png((600, 2), 16, 2, [row.tobytes() for row in colour])
    np.testing.assert_array_equal(decode(rgb), (colour >> 8).astype(np.uint8))


@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "BMP", "PPM", "TIFF", "GIF"])
@pytest.mark.parametrize("size", [(1, 1), (40, 30), (3, 1000), (1000, 300)])
def test_lossless_formats_give_their_pixels(file_format: str, size: tuple[int, int]) -> None:
    """Plain RGB comes through unchanged (a GIF: through its palette), of any shape."""
    image = photo(*size)
    if file_format == "GIF":
        image = image.quantize(64)
    blob = encode(image, file_format, **({"lossless": True} if file_format == "WEBP" else {}))
    np.testing.assert_array_equal(decode(blob), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("file_format", ["PNG", "BMP", "PPM", "TIFF", "GIF"])
def test_bilevel_becomes_black_and_white(file_format: str) -> None:
    """1-bit pictures give 0 and 255."""
    bits = noise(40, 30, 1)[..., 0] > 127
    np.testing.assert_array_equal(decode(encode(Image.fromarray(bits), file_format)), grey(bits * 255))


@pytest.mark.parametrize("compression", [None, "tiff_lzw", "tiff_adobe_deflate", "packbits"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK"])
def test_tiff_compressions_and_modes(mode: str, compression: str | None) -> None:
    """TIFFs in the accepted compressions give the picture that was saved."""
    image = photo(70, 50).convert(mode)
    blob = encode(image, "TIFF", compression=compression)
    np.testing.assert_array_equal(decode(blob), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("ink", [(0, 0, 0, 0), (255, 0, 0, 0), (10, 200, 90, 40), (0, 0, 0, 255), (255,) * 4])
def test_cmyk_and_ycck_jpegs_become_rgb(ink: tuple[int, int, int, int]) -> None:
    """Inks are subtracted from white, in Adobe's inverted CMYK and in YCCK."""
    blob = encode(Image.new("CMYK", (16, 16), ink), "JPEG", quality=100, subsampling=0)
    cyan, magenta, yellow, black = ink
    expected = [(255 - c) * (255 - black) / 255 for c in (cyan, magenta, yellow)]
    np.testing.assert_allclose(decode(blob)[8, 8], expected, atol=2)
    # The same samples declared as YCCK: Adobe's marker ends with the transform, 2.
    adobe = blob.index(b"Adobe")
    ycck = blob[: adobe + 11] + b"\x02" + blob[adobe + 12 :]
    luma, blue, red, key = (255 - value for value in ink)
    inverted = [luma + 1.402 * (red - 128), luma - 0.344136 * (blue - 128) - 0.714136 * (red - 128)]
    inverted.append(luma + 1.772 * (blue - 128))
    expected = [(255 - np.clip(value, 0, 255)) * key / 255 for value in inverted]
    np.testing.assert_allclose(decode(ycck)[8, 8], expected, atol=3)


def test_the_first_picture_of_an_mpo_is_taken() -> None:
    """A phone's MPO, a JPEG with a second one behind it, gives its first picture."""
    first, second = photo(64, 48), photo(32, 32)
    blob = encode(first, "MPO", save_all=True, append_images=[second])
    assert Image.open(io.BytesIO(blob)).format == "MPO"
    np.testing.assert_array_equal(decode(blob), with_pillow(encode(first, "JPEG")))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_bytes_behind_the_picture_are_ignored(file_format: str) -> None:
    """Rubbish after the end of a file does not cost the picture."""
    blob = encode(photo(40, 30), file_format)
    np.testing.assert_array_equal(decode(blob + b"\0rubbish" * 20), decode(blob))


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"])
def test_a_truncated_picture_is_bad_media(file_format: str) -> None:
    """Half a file is refused, never half a picture, and the error keeps the codec's as its cause."""
    blob = encode(photo(200, 150), file_format)
    with pytest.raises(BadMedia) as caught:
        decode(blob[: len(blob) // 2])
    assert len(str(caught.value)) < 250
    for length in range(0, 60, 3):
        with pytest.raises(BadMedia):
            decode(blob[:length])


def test_a_jpeg_that_only_pillow_accepts_is_decoded() -> None:
    """Where the fast codec refuses a damaged JPEG that Pillow decodes, Pillow's pixels are the answer."""
    blob = encode(photo(200, 150), "JPEG")
    at = blob.index(b"\xff\xda") + 14
    damaged = blob[:at] + b"\0" * 40 + blob[at + 40 :]
    np.testing.assert_array_equal(decode(damaged), with_pillow(damaged))
