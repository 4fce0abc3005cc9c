"""Pictures on their way to a model: the pixels of Pillow, transformers' and torchvision's crops, exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil

from reward_service.errors import BadMedia
from reward_service.models.pixels import (
    OPENAI_MEAN,
    OPENAI_STD,
    Normalise,
    center_crop,
    resize_crop,
    resize_shorter,
    stack,
    to_array,
)
from reward_service.testing.pictures import cases, picture

CPU = torch.device("cpu")


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_as_transformers_prepares_it(case: object) -> None:
    """Resizing, crop and normalisation give the values of CLIP's own processor on Pillow."""
    image = case.image  # type: ignore[attr-defined]
    if min(image.size) == 1:
        pytest.skip("taken for a picture of one channel by the processor")
    expected = CLIPImageProcessorPil()(image, return_tensors="pt")["pixel_values"]
    ours = Normalise(OPENAI_MEAN, OPENAI_STD, CPU)(stack([to_array(resize_crop(image, 224))], CPU))
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() < 1e-6


@pytest.mark.parametrize(("width", "offset"), [(224, 0), (225, 0), (226, 1), (227, 2), (229, 2), (231, 4)])
def test_torchvisions_crop(width: int, offset: int) -> None:
    """Half pixels are rounded to even there, and down in transformers."""
    columns = np.broadcast_to(np.arange(width, dtype=np.uint8)[None, :, None], (224, width, 3))
    image = Image.fromarray(columns.copy())
    assert center_crop(image, 224, "even").getpixel((0, 0))[0] == offset  # type: ignore[index]
    assert center_crop(image, 224, "floor").getpixel((0, 0))[0] == (width - 224) // 2  # type: ignore[index]


def test_sizes() -> None:
    """The shorter side becomes the size, the longer one is cut to a whole number."""
    assert resize_shorter(picture(600, 401, 0), 224).size == (335, 224)
    assert resize_shorter(picture(401, 600, 0), 224).size == (224, 335)
    assert resize_shorter(picture(1, 1, 0), 224).size == (224, 224)


def test_a_picture_that_would_explode() -> None:
    """A picture thinner than 1:256 is refused before its longer side is made."""
    with pytest.raises(BadMedia, match="1×257"):
        resize_crop(Image.new("RGB", (1, 257)), 224)
    assert resize_crop(Image.new("RGB", (1, 256)), 224).size == (224, 224)


def test_stacking_and_arithmetic() -> None:
    """Bytes reach the device as bytes, in order, and are normalised there in float32 whatever the type asked for."""
    arrays = [np.full((2, 2, 3), value, dtype=np.uint8) for value in (0, 255)]
    batch = stack(arrays, CPU)
    assert batch.dtype is torch.uint8
    assert batch.shape == (2, 3, 2, 2)
    half = Normalise((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), CPU, torch.bfloat16)(batch)
    assert half.dtype is torch.bfloat16
    assert half[0].unique().tolist() == [-1.0]
    assert half[1].unique().tolist() == [1.0]


def test_arrays_are_copies() -> None:
    """What is prepared may outlive the picture; greyscale becomes RGB."""
    image = Image.new("L", (3, 2), 7)
    array = to_array(image)
    array[:] = 0
    assert array.shape == (2, 3, 3)
    assert image.getpixel((0, 0)) == 7
