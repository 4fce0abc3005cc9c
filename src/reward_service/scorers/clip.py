"""Text-image similarity: CLIP's cosine of prompt and picture.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", arXiv 2103.00020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from reward_service.scorers.registry import register
from reward_service.scorers.tensor import TensorScorer

if TYPE_CHECKING:
    import numpy as np
    import torch
    from PIL.Image import Image


class ClipPair(TensorScorer):
    """The scaled cosine of a CLIP in transformers' layout, divided by `divide_by`."""

    max_batch_size = 64
    divide_by: ClassVar[float]

    def __init__(
        self,
        model_name: str,
        weights_path: str | None,
        *,
        dtype: str,
        device: str,
        max_batch_size: int | None,
        compile: bool,
    ) -> None:
        super().__init__(device, dtype, max_batch_size, compile)
        from reward_service.models.clip import clip_from_folder
        from reward_service.models.sources import WEIGHTS, weights_folder

        needed = ("config.json", "tokenizer.json|vocab.json", WEIGHTS)
        folder = weights_folder(weights_path, model_name, needed)
        self.towers = clip_from_folder(folder, self.device, self.dtype, compile)

    def prepare(self, image: Image) -> np.ndarray:
        from reward_service.models.pixels import resize_crop, to_array

        return to_array(resize_crop(image, self.towers.image_size))

    def forward(self, texts: list[str], arrays: list[np.ndarray]) -> torch.Tensor:
        from reward_service.models.pixels import stack

        pictures = self.towers.encode_images(stack(arrays, self.device))
        cosine = (pictures * self.towers.encode_texts(texts)).sum(dim=-1)
        return cosine * (self.towers.logit_scale / self.divide_by)


@register("clip")
class ClipScorer(ClipPair):
    """100 × cosine / 30 for the published weights: about 0.3 to 1.2, higher is better.

    model_name: hub repository or local folder. weights_path: local folder, wins over model_name. For dtype, device,
    max_batch_size and compile see `TensorScorer`.
    """

    sub_metric_names = ("clip",)
    divide_by = 30.0

    def __init__(
        self,
        model_name: str = "openai/clip-vit-large-patch14",
        weights_path: str | None = None,
        dtype: str = "float32",
        device: str = "cuda",
        max_batch_size: int | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(
            model_name, weights_path, dtype=dtype, device=device, max_batch_size=max_batch_size, compile=compile
        )
