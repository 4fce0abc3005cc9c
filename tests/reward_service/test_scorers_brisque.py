"""brisque: orientation and failures on a fake model, and golden values in its own environment."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reward_service.errors import BadMedia, ScorerLoadError
from reward_service.scorers.base import ScoreItem
from reward_service.scorers.brisque import BrisqueScorer

ROOT = Path(__file__).parents[2]


class Contrast:
    """Stands for the package's model: its value is the picture's contrast, NaN without any."""

    def __init__(self, url: bool) -> None:
        assert url is False

    def score(self, pixels: np.ndarray[Any, Any]) -> float:
        assert pixels.ndim == 3
        assert pixels.dtype == np.uint8
        spread = float(pixels.std())
        return float(np.float64(spread) * np.float64(spread) / np.float64(spread))


class OldArrays(Contrast):
    def score(self, pixels: np.ndarray[Any, Any]) -> float:
        return float(np.array([[1.0, 2.0]]))  # what numpy refuses: an array that is no number


def with_package(monkeypatch: pytest.MonkeyPatch, model: type) -> None:
    package = ModuleType("brisque")
    package.BRISQUE = model  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "brisque", package)


def items(*images: Image.Image | None) -> list[ScoreItem]:
    return [ScoreItem([("any prompt", image)]) for image in images]


STRIPES = Image.fromarray(np.tile(np.array([0, 200], np.uint8), (64, 32))).convert("RGB")
FLAT = Image.new("RGB", (64, 64), "grey")


def test_higher_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reward is minus the package's value; negate=False gives the value itself."""
    with_package(monkeypatch, Contrast)
    assert BrisqueScorer().score(items(STRIPES)) == [{"brisque": pytest.approx(-100.0)}]
    assert BrisqueScorer(negate=False).score(items(STRIPES)) == [{"brisque": pytest.approx(100.0)}]


def test_a_flat_picture_stays_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no value gets none, without a warning; a missing image or a dot is a failure of its item."""
    with_package(monkeypatch, Contrast)
    flat, missing, dot, stripes = BrisqueScorer().score(items(FLAT, None, Image.new("RGB", (1, 9)), STRIPES))
    assert math.isnan(flat["brisque"])
    assert isinstance(missing, BadMedia)
    assert "no image" in str(missing)
    assert isinstance(dot, BadMedia)
    assert "1×9" in str(dot)
    assert list(stripes) == ["brisque"]
    assert BrisqueScorer().score([]) == []


def test_the_wrong_environment_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package, or with a numpy too new for it, the constructor names the environment to use."""
    monkeypatch.setitem(sys.modules, "brisque", None)
    with pytest.raises(ScorerLoadError, match=r"envs/brisque\.txt") as absent:
        BrisqueScorer()
    assert isinstance(absent.value.__cause__, ImportError)
    with_package(monkeypatch, OldArrays)
    with pytest.raises(ScorerLoadError, match=rf"numpy {np.__version__}, it needs numpy < 2\.3") as too_new:
        BrisqueScorer()
    assert isinstance(too_new.value.__cause__, TypeError)


GOLDEN_PROGRAM = """if True:
    import json, sys
    import numpy
    from PIL import Image
    from reward_service.demo_pictures import demo_samples
    from reward_service.scorers.base import ScoreItem
    from reward_service.scorers.registry import get_scorer_cls

    images = {sample.name: sample.image for sample in demo_samples()}
    images["flat"] = Image.new("RGB", (64, 64), "grey")
    scores = get_scorer_cls("brisque")().score([ScoreItem([("", image)]) for image in images.values()])
    named = {name: repr(score["brisque"]) for name, score in zip(images, scores)}
    print(json.dumps({"numpy": numpy.__version__, "scores": named}))
"""


@pytest.mark.isolated
def test_golden_values_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """envs/brisque.txt builds, with its own numpy beside the base's newer one, and gives known scores."""
    pytest.importorskip("skimage", reason="the photographs are scikit-image's, of the extra demo")
    from reward_service.workers.environments import ensure_environment

    python = ensure_environment(ROOT / "envs" / "brisque.txt", cache_dir=tmp_path)
    done = subprocess.run([python, "-c", GOLDEN_PROGRAM], check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert tuple(map(int, answer["numpy"].split(".")[:2])) < (2, 3)
    assert answer["numpy"] != np.__version__
    scores = {name: float(score) for name, score in answer["scores"].items()}
    golden = {"astronaut": -10.79, "coffee": -3.05, "cat": -2.87}
    assert {name: scores[name] for name in golden} == pytest.approx(golden, abs=0.1)
    # These go through Pillow's blur and JPEG codec first, whose builds may differ.
    assert scores["astronaut-blurred"] == pytest.approx(-76.7, abs=2)
    assert scores["astronaut-crushed"] == pytest.approx(-60.5, abs=2)
    assert math.isnan(scores["flat"])
    assert "Warning" not in done.stderr
