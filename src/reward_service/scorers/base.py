"""What a scorer is: a class whose ``score`` turns items into named floats.

This module runs in every scorer process: standard library, Pillow and numpy only, Python 3.10.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Union

from reward_service.errors import BadMedia, ItemError

if TYPE_CHECKING:
    from pathlib import Path

    from PIL.Image import Image

# A turn unpacks like the tuple ``(text, image)``; image is an RGB PIL image or None.
Turn = Sequence[Any]
# Encoded video file: its bytes, or a path that is readable on the replica's node.
Video = Union[bytes, "Path", None]


@dataclass
class ScoreItem:
    """One prompt with its outputs.

    history: turns ``(text, image | None)``, oldest first; image scorers read the last one.
    videos: one entry per turn (encoded bytes, a path, or None), or None when no turn has a video.
    metadata: the request's ``metadata``, untouched.
    """

    history: Sequence[Turn]
    videos: Sequence[Video] | None = None
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """Text of the last turn."""
        return str(self.history[-1][0])

    @property
    def image(self) -> Image | None:
        """Image of the last turn: RGB, alpha composited on white, EXIF orientation applied."""
        image: Image | None = self.history[-1][1]
        return image

    def required_image(self) -> Image:
        """`image`; raises BadMedia when the last turn has none."""
        if self.image is None:
            turn = len(self.history) - 1
            raise BadMedia(f"history[{turn}] has no image and this reward reads the last turn's; send one there")
        return self.image


class BaseScorer(ABC):
    """Base class of scorers; the constructor gets the config's ``params`` as keyword arguments.

    `score` returns one dict per item, same length and order, sub-metrics in the order of
    `sub_metric_names`. An item that cannot be scored is a NaN in its dict, or an exception as its
    entry. An exception raised by `score` is attributed by splitting the batch: it costs the guilty
    items only. Empty list in, empty list out.
    """

    sub_metric_names: ClassVar[tuple[str, ...]] = ()
    # Items per call when the config does not say.
    max_batch_size: ClassVar[int] = 32

    @abstractmethod
    def score(self, items: list[ScoreItem]) -> Sequence[dict[str, float] | Exception]:
        """Score *items*; see the class docstring."""

    def warmup(self) -> None:  # noqa: B027 - optional hook
        """Run once before the first request, so that it pays no first-call cost."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release what the constructor took; called when the process stops in an orderly way."""


class ItemScorer(BaseScorer):
    """A scorer that has nothing to gain from a batch: it implements `score_item` only.

    An ItemError that `score_item` raises becomes that item's entry and costs the neighbours no second try.
    Any other exception leaves `score` and is attributed by the caller.
    """

    def score(self, items: list[ScoreItem]) -> Sequence[dict[str, float] | Exception]:
        return [self._entry(item) for item in items]

    @abstractmethod
    def score_item(self, item: ScoreItem) -> dict[str, float]:
        """The sub-metrics of *item*."""

    def _entry(self, item: ScoreItem) -> dict[str, float] | Exception:
        try:
            return self.score_item(item)
        except ItemError as error:
            return error
