"""What is measured, and what is sent for it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from PIL import Image

from reward_service.bench.load import Point
from reward_service.errors import ConfigError

_SIDE = 512


@dataclass(frozen=True)
class Plan:
    """The measurements of one run: every combination of the sequences.

    rewards: asked together, or one after the other when *isolated*. total: requests per measurement.
    """

    rewards: tuple[str, ...]
    concurrency: tuple[int, ...]
    batch_sizes: tuple[int, ...] = (1,)
    repetitions: int = 1
    isolated: bool = False
    total: int = 1000

    def points(self) -> Iterator[Point]:
        """In the order in which they are measured: a whole pass, then the next repetition."""
        sets = [(reward,) for reward in self.rewards] if self.isolated else [self.rewards]
        for repetition in range(1, self.repetitions + 1):
            for rewards in sets:
                for batch_size in self.batch_sizes:
                    for concurrency in self.concurrency:
                        yield Point(rewards, concurrency, batch_size, repetition)

    def count(self) -> int:
        """How many requests that is."""
        return self.total * sum(1 for _ in self.points())


def request_body(point: Point, prompt: str, pictures: Sequence[bytes]) -> bytes:
    """A body of ``POST /score``; item *i* has picture *i*, from the start again when they run out."""
    texts = [base64.b64encode(picture).decode() for picture in pictures]
    items = [
        {
            "history": [{"text": prompt, "image_b64": texts[index % len(texts)]}],
            "required_rewards": point.rewards,
        }
        for index in range(point.batch_size)
    ]
    return orjson.dumps({"requests": items})


def read_pictures(paths: Sequence[Path]) -> list[bytes]:
    """The files, as they are; raises ConfigError for one that cannot be read."""
    pictures = []
    for path in paths:
        try:
            pictures.append(path.read_bytes())
        except OSError as error:
            raise ConfigError(f"--image {path}: {error.strerror}; give a picture file") from error
    return pictures


def painted_pictures(count: int) -> list[bytes]:
    """Different JPEGs of 512 × 512: a server that decodes equal pictures of a request once gains nothing."""
    shades = (
        Image.linear_gradient("L").resize((_SIDE, _SIDE)),
        Image.radial_gradient("L").resize((_SIDE, _SIDE)),
    )
    return [_painted(shades[0], shades[1], index) for index in range(count)]


def _painted(straight: Image.Image, round_: Image.Image, index: int) -> bytes:
    image = Image.merge("RGB", (straight.rotate(7 * index), round_, straight.rotate(90 - 11 * index)))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=95)
    return file.getvalue()
