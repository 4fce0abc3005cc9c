"""Pictures on their way to a model: resized by Pillow, whose pixels the checkpoints know, the rest on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from PIL import Image

from reward_service.errors import BadMedia

OPENAI_MEAN = (0.48145466, 0.4578275, 0.40821073)
OPENAI_STD = (0.26862954, 0.26130258, 0.27577711)
# How half a pixel is rounded where a crop cannot be centred: transformers floors, torchvision rounds to even.
Half = Literal["floor", "even"]
MAX_ASPECT = 256


def resize_shorter(image: Image.Image, size: int, resample: int = Image.Resampling.BICUBIC) -> Image.Image:
    """*image* with its shorter side at *size*, the longer one at ``int(size * long / short)``.

    Raises BadMedia for a picture thinner than 1:`MAX_ASPECT`, whose longer side would take gigabytes.
    """
    if max(image.size) > MAX_ASPECT * min(image.size):
        raise BadMedia(f"the image is {image.width}×{image.height}; this reward takes sides of up to 1:{MAX_ASPECT}")
    target = _resized(image.size, size)
    return image if target == image.size else image.resize(target, resample)


def center_crop(image: Image.Image, size: int, half: Half = "floor") -> Image.Image:
    """The *size* × *size* middle of *image*, which must be at least as large."""
    left, top = (_offset(side - size, half) for side in image.size)
    return image.crop((left, top, left + size, top + size))


def resize_crop(image: Image.Image, size: int, half: Half = "floor") -> Image.Image:
    """`resize_shorter`, bicubic, then `center_crop`: the preprocessing of the CLIP family."""
    return center_crop(resize_shorter(image, size), size, half)


def _resized(sides: tuple[int, int], size: int) -> tuple[int, int]:
    width, height = sides
    if width <= height:
        return size, int(size * height / width)
    return int(size * width / height), size


def _offset(room: int, half: Half) -> int:
    return room // 2 if half == "floor" else round(room / 2)


def to_array(image: Image.Image) -> np.ndarray:
    """RGB pixels of *image*, uint8 [H, W, 3], in memory of their own."""
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))


def stack(arrays: Sequence[np.ndarray], device: torch.device) -> torch.Tensor:
    """Pictures of one size as uint8 [B, 3, H, W] on *device* (channels last in memory)."""
    batch = torch.from_numpy(np.stack(arrays))
    if device.type == "cuda":
        batch = batch.pin_memory().to(device, non_blocking=True)
    return batch.permute(0, 3, 1, 2)


class Normalise:
    """uint8 pictures [B, 3, H, W] to ``(x / 255 - mean) / std``, computed in float32 on the device, then *dtype*."""

    def __init__(
        self, mean: Sequence[float], std: Sequence[float], device: torch.device, dtype: torch.dtype = torch.float32
    ) -> None:
        self._mean = torch.tensor(mean, device=device).view(1, 3, 1, 1)
        self._std = torch.tensor(std, device=device).view(1, 3, 1, 1)
        self._dtype = dtype

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        scaled = pixels.to(torch.float32).div_(255)
        return scaled.sub_(self._mean).div_(self._std).to(self._dtype).contiguous()
