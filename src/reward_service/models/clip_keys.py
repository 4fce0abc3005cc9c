"""How open_clip and the original CLIP name what transformers' CLIPModel names otherwise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from reward_service.errors import ScorerLoadError


class Architecture(NamedTuple):
    """What a state does not tell: the width of an attention head in each tower, and the activation."""

    vision_head: int
    text_head: int
    activation: str


# With the weights that OpenAI published the activation is quick_gelu, and H-14 was trained with GELU.
ARCHITECTURES = {
    "ViT-B-32": Architecture(64, 64, "quick_gelu"),
    "ViT-B-16": Architecture(64, 64, "quick_gelu"),
    "ViT-L-14": Architecture(64, 64, "quick_gelu"),
    "ViT-L-14-336": Architecture(64, 64, "quick_gelu"),
    "ViT-H-14": Architecture(80, 64, "gelu"),
}

# Buffers and notes that are no weights.
_NOT_WEIGHTS = re.compile(r"(attn_mask|input_resolution|context_length|vocab_size|logit_bias)")
_BLOCK = re.compile(r"(visual\.)?transformer\.resblocks\.(\d+)\.(.+)")
_WHOLE = {
    "logit_scale": "logit_scale",
    "text_projection": "text_projection.weight",
    "positional_embedding": "text_model.embeddings.position_embedding.weight",
    "token_embedding.weight": "text_model.embeddings.token_embedding.weight",
    "ln_final.weight": "text_model.final_layer_norm.weight",
    "ln_final.bias": "text_model.final_layer_norm.bias",
    "visual.proj": "visual_projection.weight",
    "visual.class_embedding": "vision_model.embeddings.class_embedding",
    "visual.positional_embedding": "vision_model.embeddings.position_embedding.weight",
    "visual.conv1.weight": "vision_model.embeddings.patch_embedding.weight",
    "visual.ln_pre.weight": "vision_model.pre_layrnorm.weight",
    "visual.ln_pre.bias": "vision_model.pre_layrnorm.bias",
    "visual.ln_post.weight": "vision_model.post_layernorm.weight",
    "visual.ln_post.bias": "vision_model.post_layernorm.bias",
}
_IN_BLOCK = {"ln_1": "layer_norm1", "ln_2": "layer_norm2", "attn.out_proj": "self_attn.out_proj",
             "mlp.c_fc": "mlp.fc1", "mlp.c_proj": "mlp.fc2"}  # fmt: skip
# Stored as the matrix on the right of the product; a Linear holds its transpose.
_TRANSPOSED = ("text_projection", "visual.proj")


def to_transformers(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """*state* under transformers' names; keys that CLIP does not have are kept, to be refused by name."""
    mapped: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        if _NOT_WEIGHTS.fullmatch(key):
            continue
        if key in _WHOLE:
            mapped[_WHOLE[key]] = value.t().contiguous() if key in _TRANSPOSED else value
        elif block := _BLOCK.fullmatch(key):
            tower = "vision_model" if block[1] else "text_model"
            _map_block(mapped, f"{tower}.encoder.layers.{block[2]}", block[3], value)
        else:
            mapped[key] = value
    return mapped


def _map_block(mapped: dict[str, torch.Tensor], layer: str, name: str, value: torch.Tensor) -> None:
    if name in ("attn.in_proj_weight", "attn.in_proj_bias"):
        kind = name.rpartition("_")[2]
        for part, rows in zip("qkv", value.chunk(3), strict=True):
            mapped[f"{layer}.self_attn.{part}_proj.{kind}"] = rows
        return
    module, _, kind = name.rpartition(".")
    mapped[f"{layer}.{_IN_BLOCK.get(module, module)}.{kind}"] = value


def geometry(state: dict[str, torch.Tensor], arch: str, source: Path) -> dict[str, Any]:
    """The arguments of a CLIPConfig for *state*; ValueError for an *arch* that is not known."""
    if arch not in ARCHITECTURES:
        raise ValueError(f"no CLIP architecture {arch!r}; choose one of: {', '.join(ARCHITECTURES)}")
    known = ARCHITECTURES[arch]
    try:
        return {
            "projection_dim": state["visual.proj"].shape[1],
            "vision_config": _vision(state, known),
            "text_config": _text(state, known),
        }
    except KeyError as error:
        raise ScorerLoadError(
            f"{source} is no CLIP checkpoint in open_clip's layout: it comes without {error}"
        ) from error


def _vision(state: dict[str, torch.Tensor], known: Architecture) -> dict[str, Any]:
    width, _, patch, _ = state["visual.conv1.weight"].shape
    side = round((state["visual.positional_embedding"].shape[0] - 1) ** 0.5)
    return {
        "hidden_size": width,
        "intermediate_size": state["visual.transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        "num_hidden_layers": _layers(state, "visual.transformer.resblocks."),
        "num_attention_heads": max(1, width // known.vision_head),
        "image_size": side * patch,
        "patch_size": patch,
        "hidden_act": known.activation,
        "projection_dim": state["visual.proj"].shape[1],
    }


def _text(state: dict[str, torch.Tensor], known: Architecture) -> dict[str, Any]:
    vocabulary, width = state["token_embedding.weight"].shape
    return {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": state["transformer.resblocks.0.mlp.c_fc.weight"].shape[0],
        "num_hidden_layers": _layers(state, "transformer.resblocks."),
        "num_attention_heads": max(1, width // known.text_head),
        "max_position_embeddings": state["positional_embedding"].shape[0],
        "hidden_act": known.activation,
        "projection_dim": state["text_projection"].shape[1],
        # The two specials stand last; the end token is where the answer is read.
        "bos_token_id": vocabulary - 2,
        "eos_token_id": vocabulary - 1,
        "pad_token_id": vocabulary - 1,
    }


def _layers(state: dict[str, torch.Tensor], prefix: str) -> int:
    return 1 + max(int(key[len(prefix) :].partition(".")[0]) for key in state if key.startswith(prefix))
