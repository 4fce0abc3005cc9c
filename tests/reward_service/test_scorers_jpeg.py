"""jpeg_compressibility and jpeg_incompressibility: the size of a file, in both orientations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reward_service.errors import BadMedia
from reward_service.scorers.base import ScoreItem
from reward_service.scorers.registry import get_scorer_cls

FLAT = Image.new("RGB", (256, 256), "teal")
RAMP = Image.merge("RGB", [Image.linear_gradient("L")] * 3)
NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8))


def scores(name: str, *images: Image.Image, **params: float) -> list[float]:
    results = get_scorer_cls(name)(**params).score([ScoreItem([("", image)]) for image in images])
    assert all(list(result) == [name] for result in results)
    return [result[name] for result in results]


def test_the_score_is_the_size_of_the_file_in_kilobytes(tmp_path: Path) -> None:
    """One reward is bytes / 1,000 of the JPEG that Pillow writes at quality 95, the other is minus that."""
    for image in (FLAT, RAMP, NOISE):
        image.save(tmp_path / "picture.jpg", quality=95)
        kilobytes = (tmp_path / "picture.jpg").stat().st_size / 1000
        assert scores("jpeg_incompressibility", image) == [kilobytes]
        assert scores("jpeg_compressibility", image) == [-kilobytes]


def test_golden_sizes_of_drawn_pictures() -> None:
    """Sizes that libjpeg-turbo gives; another encoder build may differ by some per cent."""
    golden = [1.654, 6.514, 77.481]
    assert scores("jpeg_incompressibility", FLAT, RAMP, NOISE) == pytest.approx(golden, rel=0.05)


def test_golden_size_of_a_photograph() -> None:
    """The 512² photograph of an astronaut is 99.3 kB at quality 95, and 40.2 at Pillow's usual 75."""
    data = pytest.importorskip("skimage.data", reason="the photograph is scikit-image's, of the extra demo")
    astronaut = Image.fromarray(data.astronaut())
    assert scores("jpeg_incompressibility", astronaut) == pytest.approx([99.3], rel=0.03)
    assert scores("jpeg_incompressibility", astronaut, quality=75) == pytest.approx([40.24], rel=0.03)


def test_divide_by_changes_the_unit() -> None:
    """divide_by=500 gives Flow-GRPO's scale."""
    (plain,) = scores("jpeg_compressibility", NOISE)
    assert scores("jpeg_compressibility", NOISE, divide_by=500) == [pytest.approx(plain / 500)]


def test_only_the_pixels_count() -> None:
    """What an image carries along from its file does not make it larger."""
    tagged = RAMP.copy()
    tagged.info |= {"comment": b"x" * 5_000, "exif": b"Exif\0\0" + b"x" * 5_000, "icc_profile": b"x" * 5_000}
    assert scores("jpeg_incompressibility", tagged) == scores("jpeg_incompressibility", RAMP)


def test_items_that_have_no_size() -> None:
    """A missing image and one that no JPEG can hold are failures of their item; no items, no results."""
    scorer = get_scorer_cls("jpeg_compressibility")()
    items = [ScoreItem([("", image)]) for image in (None, FLAT, Image.new("RGB", (65_501, 1)))]
    missing, flat, long = scorer.score(items)
    assert isinstance(missing, BadMedia)
    assert "no image" in str(missing)
    assert list(flat) == ["jpeg_compressibility"]
    assert isinstance(long, BadMedia)
    assert "65501×1" in str(long)
    assert scorer.score([]) == []


@pytest.mark.parametrize(
    ("params", "says"),
    [({"quality": 0}, "quality is 0"), ({"quality": 101}, "1 to 100"), ({"divide_by": 0}, "divide_by is 0")],
)
def test_parameters_out_of_range(params: dict[str, float], says: str) -> None:
    """A parameter that cannot work is refused at the start, with its value."""
    with pytest.raises(ValueError, match=says):
        get_scorer_cls("jpeg_compressibility")(**params)
