"""BRISQUE: technical quality of a picture without a reference; sees blur, noise and blocking.

Mittal, Moorthy and Bovik, "No-Reference Image Quality Assessment in the Spatial Domain", IEEE TIP 2012: 36
statistics of locally normalised luminance at two scales, and a support vector regression on them. Features
and weights are the PyPI package ``brisque``'s, which needs numpy < 2.3: run it in ``envs/brisque.txt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reward_service.errors import BadMedia, ScorerLoadError
from reward_service.scorers.base import ItemScorer, ScoreItem
from reward_service.scorers.registry import register

if TYPE_CHECKING:
    from PIL.Image import Image

# The statistics are taken at half size too, where less than one pixel would be left.
MIN_SIDE = 2


@register("brisque")
class BrisqueScorer(ItemScorer):
    """Minus BRISQUE, so that higher is better; about -100 (broken) to 0 (clean), not clipped.

    negate: False gives the published scale, lower is better. A picture without any texture has no BRISQUE:
    its score is NaN.
    """

    sub_metric_names = ("brisque",)
    max_batch_size = 4

    def __init__(self, negate: bool = True) -> None:
        self.sign = -1.0 if negate else 1.0
        self._model = _load_model()

    def score_item(self, item: ScoreItem) -> dict[str, float]:
        return {"brisque": self.sign * _measure(self._model, item.required_image())}


def _load_model() -> Any:
    import numpy as np

    try:
        from brisque import BRISQUE
    except ImportError as error:
        raise ScorerLoadError(
            f"scorer 'brisque': {error}. It runs in its own environment: runtime_env: envs/brisque.txt"
        ) from error
    model = BRISQUE(url=False)
    try:
        model.score(np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8))
    except TypeError as error:
        # Arrays of one element stopped being numbers: found here, at the start, not once per request.
        raise ScorerLoadError(
            f"scorer 'brisque': the brisque package does not run with numpy {np.__version__}, it needs"
            " numpy < 2.3: runtime_env: envs/brisque.txt"
        ) from error
    return model


def _measure(model: Any, image: Image) -> float:
    import numpy as np

    if min(image.size) < MIN_SIDE:
        raise BadMedia(f"the image is {image.width}×{image.height} pixels; brisque needs {MIN_SIDE}×{MIN_SIDE}")
    # A flat picture divides zero by zero: the NaN is the answer, numpy's warning says nothing more.
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(model.score(np.asarray(image)))
