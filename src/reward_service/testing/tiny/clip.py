"""A tiny CLIP in transformers' layout: what `clip` and `pickscore` load."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from reward_service.testing.tiny import fill, write_clip_vocabulary


def build(folder: Path, seed: int = 0, activation: str = "quick_gelu") -> None:
    """Config, safetensors, tokenizer and image processor files of a random CLIP with 32-pixel patches at 224."""
    from transformers import CLIPConfig, CLIPModel

    folder.mkdir(parents=True, exist_ok=True)
    tokens = write_clip_vocabulary(folder)
    common = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 2, "projection_dim": 32, "hidden_act": activation}  # fmt: skip
    text = {"vocab_size": tokens, "max_position_embeddings": 77, "bos_token_id": tokens - 2,
            "eos_token_id": tokens - 1, "pad_token_id": tokens - 1, **common}  # fmt: skip
    config = CLIPConfig(
        text_config=text, vision_config={"image_size": 224, "patch_size": 32, **common}, projection_dim=32
    )
    model = CLIPModel(config)
    model.load_state_dict(tensors(model, seed))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(_PROCESSOR), encoding="utf-8")


def tensors(model: torch.nn.Module, seed: int, std: float = 0.15) -> dict[str, torch.Tensor]:
    """Random values for every weight of *model*; a `logit_scale` stays what CLIP's training ends with, log 100."""
    state: dict[str, Any] = model.state_dict()
    values = fill({key: tuple(value.shape) for key, value in state.items() if value.is_floating_point()}, seed, std)
    loaded = {key: torch.from_numpy(value) for key, value in values.items()}
    if "logit_scale" in state:
        loaded["logit_scale"] = torch.tensor(4.6052)
    return {**state, **loaded}


_PROCESSOR = {
    "image_processor_type": "CLIPImageProcessor",
    "do_convert_rgb": True,
    "do_resize": True,
    "size": {"shortest_edge": 224},
    "resample": 3,
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
