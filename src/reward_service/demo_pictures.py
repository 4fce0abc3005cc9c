"""The demo's pictures: photographs that ship inside scikit-image, and posters that are drawn here.

The photographs are free of copyright restrictions: the astronaut is NASA's (public domain), the coffee
(Rachel Michetti) and the cat (Stéfan van der Walt) are CC0. Nothing is downloaded.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from PIL import Image, ImageDraw, ImageFilter, ImageFont

POSTER_SIZE = (512, 512)
POSTER_PROMPT = 'a poster in a shop window that says "OPEN 24 HOURS"'
ASTRONAUT_PROMPT = "a portrait of an astronaut in an orange suit, photograph"


@dataclass(frozen=True)
class Sample:
    """A picture and the prompt that it is scored against. image: RGB."""

    name: str
    prompt: str
    image: Image.Image


def demo_samples() -> list[Sample]:
    """Eight samples, chosen so that every reward of ``configs/demo.yaml`` has something to rank.

    `brisque` and `jpeg_*` tell the three astronauts apart, `ocr` the three posters. Needs scikit-image
    (``pip install 'reward-service[demo]'``).
    """
    astronaut, coffee, cat = _photographs()
    return [
        Sample("astronaut", ASTRONAUT_PROMPT, astronaut),
        Sample("astronaut-blurred", ASTRONAUT_PROMPT, astronaut.filter(ImageFilter.GaussianBlur(3))),
        Sample("astronaut-crushed", ASTRONAUT_PROMPT, jpeg_crushed(astronaut, quality=8)),
        Sample("coffee", "a cup of coffee on a wooden table, photograph", coffee),
        Sample("cat", "a close portrait of a tabby cat, photograph", cat),
        Sample("poster-right", POSTER_PROMPT, poster("OPEN", "24 HOURS")),
        Sample("poster-misspelt", POSTER_PROMPT, poster("OPEN", "24 HUORS")),
        Sample("poster-blank", POSTER_PROMPT, poster()),
    ]


def _photographs() -> list[Image.Image]:
    try:
        from skimage import data
    except ImportError as error:
        raise ImportError(
            "the demo's photographs are scikit-image's; install it: pip install 'reward-service[demo]'"
        ) from error
    loaders: tuple[Any, ...] = (data.astronaut, data.coffee, data.chelsea)
    return [Image.fromarray(load()) for load in loaders]


def poster(*lines: str) -> Image.Image:
    """A dark blue poster with a frame and *lines* of centred words; RGB, `POSTER_SIZE`."""
    width, height = POSTER_SIZE
    shade = Image.linear_gradient("L").resize(POSTER_SIZE)
    image = Image.composite(Image.new("RGB", POSTER_SIZE, "#0b1f3a"), Image.new("RGB", POSTER_SIZE, "#1f4e79"), shade)
    draw = ImageDraw.Draw(image)
    draw.rectangle((24, 24, width - 25, height - 25), outline="#f2c14e", width=6)
    font = ImageFont.load_default(size=80)
    for number, line in enumerate(lines):
        middle = height / 2 + 110 * (number - (len(lines) - 1) / 2)
        draw.text((width / 2, middle), line, fill="#fff8e7", font=font, anchor="mm")
    return image


def jpeg_crushed(image: Image.Image, quality: int) -> Image.Image:
    """*image* after a JPEG of *quality*, with its blocks."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")
