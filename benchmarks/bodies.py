"""Request bodies with real photographs, built before any clock starts."""

from __future__ import annotations

import base64
import io
import random
from dataclasses import dataclass
from pathlib import Path

import orjson
from cases import Shape
from PIL import Image

# Photographs inside scikit-image's own package; nothing is downloaded.
SOURCES = (
    "astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg",
    "retina.jpg", "motorcycle_left.png", "ihc.png", "hubble_deep_field.jpg",
)  # fmt: skip
PICTURES = 48
QUALITY = 90
SEED = 7
BYTES_OF_BODIES = 64 << 20


@dataclass(frozen=True)
class Body:
    """One request: its JSON, and the length of each prompt, which the noop scorer answers."""

    json: bytes
    text_lengths: tuple[int, ...]
    path: Path


def pictures(size: int) -> list[bytes]:
    """Distinct JPEG files of *size* × *size* pixels: crops of photographs, resized; the same every time.

    Raises ImportError when scikit-image is missing.
    """
    rng = random.Random(SEED)
    sources = _photographs()
    files = []
    for number in range(PICTURES):
        source = sources[number % len(sources)]
        side = int(min(source.size) * rng.uniform(0.7, 1.0))
        left, top = rng.randint(0, source.width - side), rng.randint(0, source.height - side)
        crop = source.resize((size, size), Image.Resampling.LANCZOS, (left, top, left + side, top + side))
        buffer = io.BytesIO()
        crop.save(buffer, "JPEG", quality=QUALITY)
        files.append(buffer.getvalue())
    return files


def _photographs() -> list[Image.Image]:
    try:
        import skimage
    except ImportError as error:
        raise ImportError(
            "the benchmark's photographs are scikit-image's; install it: pip install 'reward-service[dev]'"
        ) from error
    folder = Path(skimage.__file__).parent / "data"
    return [Image.open(folder / name).convert("RGB") for name in SOURCES]


def build(shape: Shape, folder: Path) -> list[Body]:
    """Four to sixteen bodies of *shape*, also written to *folder* for the direct loop to read."""
    files = pictures(shape.size)
    rng = random.Random(SEED)
    size = sum(map(len, files)) / len(files) * shape.items * 4 / 3
    count = max(4, min(16, int(BYTES_OF_BODIES / size)))
    return [_body(shape, files, rng, folder / f"{shape.letter}-{number}.json") for number in range(count)]


def _body(shape: Shape, files: list[bytes], rng: random.Random, path: Path) -> Body:
    texts = [f"a photograph, variant {rng.randrange(10**6)}" for _ in range(shape.items)]
    # All different within a request: a service may decode equal images once, the direct loop does not.
    images = rng.sample(files, shape.items)
    requests = [
        {
            "history": [{"text": text, "image_b64": base64.b64encode(image).decode()}],
            "required_rewards": shape.rewards,
            "metadata": None,
        }
        for text, image in zip(texts, images, strict=True)
    ]
    json = orjson.dumps({"requests": requests})
    path.write_bytes(json)
    return Body(json, tuple(map(len, texts)), path)
