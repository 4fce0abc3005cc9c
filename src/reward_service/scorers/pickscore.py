"""PickScore: which picture of a prompt people pick.

Kirstain et al., "Pick-a-Pic: An Open Dataset of User Preferences for Text-to-Image Generation", arXiv 2305.01569:
a CLIP ViT-H/14 trained on those choices.
"""

from __future__ import annotations

from reward_service.scorers.clip import ClipPair
from reward_service.scorers.registry import register


@register("pickscore")
class PickScore(ClipPair):
    """The model's logit divided by 26: about 0.6 to 1.0, higher is better.

    model_name: hub repository or local folder. weights_path: local folder, wins over model_name. For dtype, device,
    max_batch_size and compile see `TensorScorer`.
    """

    sub_metric_names = ("pickscore",)
    divide_by = 26.0

    def __init__(
        self,
        model_name: str = "yuvalkirstain/PickScore_v1",
        weights_path: str | None = None,
        dtype: str = "float32",
        device: str = "cuda",
        max_batch_size: int | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__(
            model_name, weights_path, dtype=dtype, device=device, max_batch_size=max_batch_size, compile=compile
        )
