"""Pictures and prompts on which scorers are compared with the official packages, odd ones included.

This module runs in the official packages' environments too: numpy and Pillow, Python 3.10.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

LONG_PROMPT = " ".join(f"a photo of a red circle number {index} and a blue car on the table" for index in range(30))
# Plain text in quotes, entities and accents as people type them; it exercises what tokenizers repair.
UNICODE_PROMPT = "Ein “schönes” Café &amp; ein 猫 mit 🎈, naïve ﬁsh"


class Case(NamedTuple):
    """One prompt with its picture, RGB."""

    name: str
    prompt: str
    image: Image.Image


def cases() -> list[Case]:
    """The comparison set; names are keys of the stored references."""
    return [
        Case("wide", "a photo of a red circle", picture(600, 400, 1)),
        Case("tall", "a cat and a dog", picture(300, 500, 2)),
        Case("square", "a photo of a cat", picture(512, 512, 3)),
        Case("exact", "a blue car", picture(224, 224, 4)),
        Case("odd", "the dog on the car", picture(225, 301, 5)),
        Case("flat", "a red circle", picture(224, 97, 6)),
        Case("dot", "a dot", picture(1, 1, 7)),
        Case("strip", "a very wide banner", picture(4000, 50, 8)),
        Case("grey", "a photo in black and white", grey(320, 240, 9)),
        Case("alpha", "a photo of a circle", transparent(256, 256, 10)),
        Case("empty prompt", "", picture(256, 256, 11)),
        Case("unicode", UNICODE_PROMPT, picture(256, 200, 12)),
        Case("long", LONG_PROMPT, picture(256, 300, 13)),
    ]


def picture(width: int, height: int, seed: int) -> Image.Image:
    """Colour gradients, a disc and some noise: neighbouring pixels are alike, as in photographs."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    phases = random.uniform(0, 6, 3)
    waves = [np.sin(x / (17 + 5 * channel) + y / 29 + phase) for channel, phase in enumerate(phases)]
    pixels = 127 + 90 * np.stack(waves, axis=-1)
    centre_x, centre_y, radius = (
        width * random.uniform(0.3, 0.7),
        height * random.uniform(0.3, 0.7),
        min(width, height) / 4,
    )
    disc = (x - centre_x) ** 2 + (y - centre_y) ** 2 <= radius**2
    pixels[disc] = random.uniform(0, 255, 3)
    pixels += random.normal(0, 8, pixels.shape)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def grey(width: int, height: int, seed: int) -> Image.Image:
    """A greyscale picture, as RGB."""
    return picture(width, height, seed).convert("L").convert("RGB")


def transparent(width: int, height: int, seed: int) -> Image.Image:
    """A picture that fades out to the right, composited on white as the service does with transparency."""
    image = picture(width, height, seed)
    mask = np.broadcast_to(np.linspace(255, 0, width).astype(np.uint8), (height, width))
    return Image.composite(image, Image.new("RGB", image.size, "white"), Image.fromarray(mask.copy()))
