"""Images in every form that callers hold, seen as the pixels that arrive."""

import io
import threading

import numpy as np
import pytest
from PIL import Image, ImageFile

from reward_service.client import RewardClient, RewardRequest

pytestmark = pytest.mark.timeout(60)


class Tensor:
    """The part of a torch tensor that is duck-typed: on a device, with grad, maybe bfloat16."""

    def __init__(self, array, *, floating=None, on_host=False, detached=False, bfloat16=False):
        self.array = array
        self.shape = array.shape
        self.floating = array.dtype.kind == "f" if floating is None else floating
        self.on_host = on_host
        self.detached = detached
        self.bfloat16 = bfloat16
        self.copies = 0

    def _like(self, **changes):
        state = {
            "floating": self.floating,
            "on_host": self.on_host,
            "detached": self.detached,
            "bfloat16": self.bfloat16,
        }
        return Tensor(self.array, **{**state, **changes})

    def detach(self):
        self.copies += 1
        return self._like(detached=True)

    def cpu(self):
        return self._like(on_host=True)

    def float(self):
        return self._like(bfloat16=False)

    def is_floating_point(self):
        return self.floating

    def numpy(self):
        if not self.detached or not self.on_host or self.bfloat16:
            raise TypeError("cannot convert: needs grad, is on a device, or is bfloat16")
        return self.array


@pytest.fixture
def arriving(server):
    """Sends images with the given settings; returns the encoded bytes that arrived."""

    def send(*images, **settings):
        with RewardClient(server.url, **settings) as client:
            client.score([RewardRequest([("a", image)], ["clip"]) for image in images])
        return [server.posts[-1].media(index) for index in range(len(images))]

    return send


def pixels(data):
    """The RGB array of an encoded file."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("image_format", ["PNG", "WEBP", "png", "WebP"])
def test_lossless_formats_keep_every_pixel(arriving, image_format):
    """What arrives decodes to what was given."""
    noise = np.random.default_rng(0).integers(0, 256, (33, 21, 3), dtype=np.uint8)
    (data,) = arriving(Image.fromarray(noise), image_format=image_format)
    assert Image.open(io.BytesIO(data)).format == image_format.upper()
    assert (pixels(data) == noise).all()


def test_jpeg_quality_is_used(arriving, picture):
    """JPEG is the default; the quality decides the size."""
    big = picture.resize((200, 200))
    (fine,) = arriving(big)
    (coarse,) = arriving(big, image_format="jpg", image_quality=10)
    assert Image.open(io.BytesIO(fine)).format == "JPEG"
    assert len(coarse) < len(fine)


def test_bytes_and_files_are_sent_as_they_are(arriving, tmp_path):
    """No second lossy pass, whatever the format of the client."""
    path = tmp_path / "a.bin"
    path.write_bytes(b"the file's own bytes")
    raw = [b"raw", bytearray(b"array"), memoryview(b"view"), path, str(path)]
    assert arriving(*raw) == [b"raw", b"array", b"view", path.read_bytes(), path.read_bytes()]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    "mode",
    ["1", "L", "P", "RGB", "CMYK", "YCbCr", "HSV", "LAB", "I", "F", "I;16", "LA", "PA", "RGBA", "La", "RGBa"],
)
def test_every_pil_mode_arrives_as_rgb(arriving, mode, image_format):
    """White stays white in each of them."""
    if mode == "I;16":
        white = Image.new("I;16", (8, 8), 65535)
    elif mode == "PA":
        white = Image.new("LA", (8, 8), (255, 255)).convert("PA")
    elif mode in ("La", "RGBa"):
        opaque = {"La": "LA", "RGBa": "RGBA"}[mode]
        white = Image.new("RGBA", (8, 8), "white").convert(opaque).convert(mode)
    elif mode in ("HSV", "LAB"):
        white = Image.new(mode, (8, 8), (0, 0, 255) if mode == "HSV" else (255, 128, 128))
    else:
        white = Image.new("RGB", (8, 8), "white").convert(mode)
    (data,) = arriving(white, image_format=image_format)
    assert Image.open(io.BytesIO(data)).mode == "RGB"
    assert pixels(data).min() >= 253


def test_sixteen_bit_grey_is_scaled_and_not_clipped(arriving):
    """Mid grey stays mid grey."""
    (data,) = arriving(Image.new("I;16", (8, 8), 128 * 256), image_format="PNG")
    assert pixels(data)[0, 0].tolist() == [128, 128, 128]


@pytest.mark.parametrize("image_format", ["JPEG", "PNG", "WEBP"])
def test_alpha_is_composited_on_white(arriving, image_format):
    """A transparent black pixel is white, a half transparent one grey; palette transparency counts too."""
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    half = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([0, 0, 0, 255, 0, 0])
    palette.info["transparency"] = 0
    one, two, three = (pixels(data) for data in arriving(clear, half, palette, image_format=image_format))
    assert one.min() == 255
    assert two.min() == two.max() == 127
    assert three.min() == 255


def test_exif_orientation_is_applied(arriving, tmp_path):
    """A picture arrives the way viewers show it."""
    stored = Image.new("RGB", (20, 10), "red")
    exif = stored.getexif()
    exif[0x0112] = 6
    stored.save(tmp_path / "turned.jpg", exif=exif)
    (data,) = arriving(Image.open(tmp_path / "turned.jpg"), image_format="PNG")
    assert Image.open(io.BytesIO(data)).size == (10, 20)


def test_numpy_arrays(arriving):
    """HWC with 1, 3 or 4 channels, and HW, strided or not."""
    rgb = np.random.default_rng(1).integers(0, 256, (10, 12, 3), dtype=np.uint8)
    grey = rgb[:, :, 0]
    rgba = np.dstack([rgb, np.full((10, 12), 255, np.uint8)])
    got = arriving(rgb, rgb[::-1, ::2], grey, grey[:, :, None], rgba, image_format="PNG")
    want = [rgb, rgb[::-1, ::2], np.dstack([grey] * 3), np.dstack([grey] * 3), rgb]
    assert all((pixels(data) == array).all() for data, array in zip(got, want, strict=True))


@pytest.mark.parametrize("bfloat16", [False, True])
def test_float_tensors_are_clamped_and_rounded(arriving, bfloat16):
    """CHW float: below 0 is black, above 1 white, and k/255 arrives as k."""
    ramp = np.linspace(0, 1, 256, dtype=np.float32).reshape(1, 16, 16).repeat(3, axis=0)
    wild = np.full((3, 4, 4), 7.0, np.float32)
    wild[:, 0] = -3.0
    wild[:, 1] = np.inf
    between = (np.array([10.4, 10.6], np.float32) / 255).reshape(1, 1, 2)
    tensors = [Tensor(ramp, bfloat16=bfloat16), Tensor(wild), Tensor(between)]
    first, second, third = arriving(*tensors, image_format="PNG")
    assert pixels(third)[0, :, 0].tolist() == [10, 11]
    assert (pixels(first)[:, :, 0].ravel() == np.arange(256)).all()
    assert pixels(second)[:, 0, 0].tolist() == [0, 255, 255, 255]


def test_uint8_and_single_channel_tensors(arriving):
    """uint8 is taken as it is; one channel is grey, four have alpha."""
    chw = np.random.default_rng(2).integers(0, 256, (3, 5, 7), dtype=np.uint8)
    clear = np.zeros((4, 5, 7), np.uint8)
    first, second, third = arriving(Tensor(chw), Tensor(chw[:1]), Tensor(clear), image_format="PNG")
    assert (pixels(first) == chw.transpose(1, 2, 0)).all()
    assert (pixels(second) == np.dstack([chw[0]] * 3)).all()
    assert pixels(third).min() == 255


@pytest.mark.parametrize(
    ("image", "error", "word"),
    [
        (np.zeros((8, 8, 3), np.float32), TypeError, r"float32 of shape \(8, 8, 3\)"),
        (np.zeros((3, 8, 8), np.uint8), ValueError, r"\(3, 8, 8\)"),
        (np.zeros((2, 8, 8, 3), np.uint8), ValueError, r"\(2, 8, 8, 3\)"),
        (np.zeros((0, 8, 3), np.uint8), ValueError, r"\(0, 8, 3\)"),
        (Tensor(np.zeros((8, 8, 3), np.float32)), ValueError, r"\(8, 8, 3\)"),
        (Tensor(np.zeros((1, 3, 8, 8), np.float32)), ValueError, r"\(1, 3, 8, 8\)"),
        (Tensor(np.zeros((3, 8, 8), np.int64)), TypeError, r"int64 of shape \(3, 8, 8\)"),
        (Tensor(np.full((3, 8, 8), np.nan, np.float32)), ValueError, "NaN"),
        (Image.new("RGB", (0, 5)), ValueError, r"\(0, 5\)"),
    ],
)
def test_unusable_images_are_refused_with_their_shape(server, image, error, word):
    """Named by request and turn, before anything is sent."""
    with (
        RewardClient(server.url) as client,
        pytest.raises(error, match=rf"requests\[0\]\.history\[1\].*{word}"),
    ):
        client.score([RewardRequest([("a", b"fine"), ("b", image)], ["clip"])])
    assert server.posts == []


def test_a_missing_file_is_named(server, tmp_path):
    """OSError with request, turn and path."""
    with (
        RewardClient(server.url) as client,
        pytest.raises(FileNotFoundError, match=r"requests\[0\]\.history\[0\].*gone\.png"),
    ):
        client.score([RewardRequest([("a", tmp_path / "gone.png")], ["clip"])])
    assert server.posts == []


def test_a_broken_picture_file_is_named(server, tmp_path, picture):
    """A lazily opened file that turns out to be truncated."""
    picture.resize((400, 400)).save(tmp_path / "cut.jpg")
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "cut.jpg").read_bytes()[:700])
    assert not ImageFile.LOAD_TRUNCATED_IMAGES
    with (
        RewardClient(server.url) as client,
        Image.open(tmp_path / "cut.jpg") as opened,
        pytest.raises(ValueError, match=r"requests\[0\]\.history\[0\].*truncated"),
    ):
        client.score([RewardRequest([("a", opened)], ["clip"])])


class Watched(Image.Image):
    """Remembers which threads saved it."""

    def save(self, *args, **options):
        self.savers.append(threading.current_thread())
        super().save(*args, **options)


@pytest.mark.parametrize("body_format", ["json", "msgpack"])
def test_an_image_used_often_is_encoded_once_and_not_in_the_callers_thread(server, picture, body_format):
    """Five requests, two turns each, one encoding."""
    picture.__class__ = Watched
    picture.savers = []
    tensor = Tensor(np.zeros((3, 4, 4), np.uint8))
    requests = [RewardRequest([("a", picture), ("b", picture), ("c", tensor)], ["clip"])] * 5
    with RewardClient(server.url, body_format=body_format) as client:
        client.score(requests)
    assert len(picture.savers) == 1
    assert tensor.copies == 1
    assert picture.savers[0] is not threading.current_thread()
    assert len({server.posts[0].media(item, turn) for item in range(5) for turn in (0, 1)}) == 1
