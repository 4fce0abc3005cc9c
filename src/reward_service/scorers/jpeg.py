"""JPEG size as a reward: how well, or how badly, a picture compresses.

The two rewards without a model of DDPO (Black et al., "Training Diffusion Models with Reinforcement
Learning", arXiv 2305.13301). Prompt and metadata are ignored.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from reward_service.errors import BadMedia
from reward_service.scorers.base import ItemScorer, ScoreItem
from reward_service.scorers.registry import register

if TYPE_CHECKING:
    from PIL.Image import Image


class _JpegSize(ItemScorer):
    """quality: Pillow's JPEG quality, 1 to 100. divide_by: the size in kB (1,000 bytes) is divided by it."""

    def __init__(self, quality: int = 95, divide_by: float = 1.0) -> None:
        if not 1 <= quality <= 100:
            raise ValueError(f"quality is {quality!r}; JPEG quality goes from 1 to 100")
        if not 0 < divide_by < float("inf"):
            raise ValueError(f"divide_by is {divide_by!r}; give a positive number, 1 for plain kB")
        self.quality = quality
        self.divide_by = divide_by

    def size(self, item: ScoreItem) -> float:
        """Size of the last turn's image as a JPEG, in units of `divide_by` kB."""
        return jpeg_kilobytes(item.required_image(), self.quality) / self.divide_by


@register("jpeg_incompressibility")
class JpegIncompressibility(_JpegSize):
    """The JPEG's size in kB: higher for detail and noise. Above 0."""

    sub_metric_names = ("jpeg_incompressibility",)

    def score_item(self, item: ScoreItem) -> dict[str, float]:
        return {"jpeg_incompressibility": self.size(item)}


@register("jpeg_compressibility")
class JpegCompressibility(_JpegSize):
    """Minus the JPEG's size in kB: higher for smooth pictures. Below 0."""

    sub_metric_names = ("jpeg_compressibility",)

    def score_item(self, item: ScoreItem) -> dict[str, float]:
        return {"jpeg_compressibility": -self.size(item)}


def jpeg_kilobytes(image: Image, quality: int) -> float:
    """Bytes of *image* as a JPEG of *quality*, other settings Pillow's defaults, divided by 1,000.

    Raises BadMedia for a picture that JPEG cannot hold (a side over 65,500 pixels).
    """
    file = io.BytesIO()
    try:
        # Without `comment` Pillow copies the source file's own: the size must depend on the pixels only.
        image.save(file, "JPEG", quality=quality, comment=b"")
    except OSError as error:
        size = f"{image.width}×{image.height}"
        raise BadMedia(f"the {size} {image.mode} image does not fit a JPEG: {error}") from error
    return file.tell() / 1000
