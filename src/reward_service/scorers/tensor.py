"""What the scorers have in common that run a network over a batch of pictures: devices, host threads, order.

A subclass names its sub-metrics, loads its network in the constructor, and implements `prepare` and `forward`.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from reward_service.errors import ItemError, ScorerLoadError
from reward_service.scorers.base import BaseScorer, ScoreItem

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image

# Resizing a picture is a few milliseconds without the interpreter's lock; more threads than this find no work.
MAX_HOST_THREADS = 8


class TensorScorer(BaseScorer):
    """Pictures are prepared on host threads and scored in one pass on the device.

    device: where the network runs; one that is not there is an error. dtype: of the network's weights and
    activations, float32, float16 or bfloat16. max_batch_size: items per pass. compile: let torch.compile fuse the
    network; the first passes take a minute.

    `score` may be called from several threads at once (``max_concurrency: 2``): pictures of the next batch are then
    prepared while the device works on this one.
    """

    def __init__(self, device: str, dtype: str, max_batch_size: int | None, compile: bool) -> None:
        try:
            from reward_service.models.devices import pick_device, pick_dtype
        except ImportError as error:
            raise ScorerLoadError(
                f"{type(self).__name__}: {error}. Install 'reward-service[models]' or give this reward its runtime_env"
            ) from error
        if max_batch_size is not None:
            if max_batch_size < 1:
                raise ValueError(f"max_batch_size is {max_batch_size!r}; give at least 1")
            self.max_batch_size = max_batch_size  # type: ignore[misc]  # the class holds the default
        self.dtype: torch.dtype = pick_dtype(dtype)
        self.device: torch.device = pick_device(device)
        self.compile = compile
        self._threads = ThreadPoolExecutor(min(MAX_HOST_THREADS, os.cpu_count() or 1), "prepare")

    @abstractmethod
    def prepare(self, image: Image) -> np.ndarray:
        """Pixels of *image* for the device, uint8 [H, W, 3]; an ItemError is that item's answer."""

    @abstractmethod
    def forward(self, texts: list[str], arrays: list[np.ndarray]) -> torch.Tensor:
        """One row per item: [B], or [B, number of sub-metrics]; called under inference mode."""

    def score(self, items: list[ScoreItem]) -> Sequence[dict[str, float] | Exception]:
        import torch

        prepared = list(self._threads.map(self._prepared, items))
        good = [index for index, array in enumerate(prepared) if not isinstance(array, ItemError)]
        entries: list[Any] = list(prepared)
        if good:
            with torch.inference_mode():
                rows = self.forward([items[index].text for index in good], [entries[index] for index in good])
            for index, row in zip(good, rows.float().reshape(len(good), -1).tolist(), strict=True):
                entries[index] = dict(zip(self.sub_metric_names, row, strict=True))
        return entries

    def _prepared(self, item: ScoreItem) -> np.ndarray | ItemError:
        try:
            return self.prepare(item.required_image())
        except ItemError as error:
            return error

    def warmup(self) -> None:
        """One pass over a full batch: kernels are chosen, and too large a batch shows before requests come."""
        from PIL import Image

        count = self.max_batch_size if self.device.type != "cpu" else 1
        picture = Image.new("RGB", (512, 512), "grey")
        self.score([ScoreItem([("a photo of a cat", picture)]) for _ in range(count)])

    def close(self) -> None:
        self._threads.shutdown(wait=False)
