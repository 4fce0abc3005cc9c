"""Random weights in published architectures for `scorers.py`; CLIP as ViT-B/32, so that overheads show."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from reward_service.models.clip_keys import geometry, to_transformers
from reward_service.models.clip_text import END, START, read_bpe
from reward_service.testing.tiny import clip as tiny_clip

CLIP_SIDES = ("forward", "ours", "group", "one", "reference", "open_clip", "infinity")
CONTEXT, VOCABULARY = 77, 49408


def clip(folder: Path, bpe: Path | None) -> None:
    """A CLIP of ViT-B/32's size in transformers' layout, and the same weights in open_clip's.

    bpe: CLIP's vocabulary file; without it texts are cut into the pieces of a small one.
    """
    from transformers import CLIPConfig, CLIPModel

    tiny_clip.build(folder)
    state = open_clip_state(vision=(768, 12, 32), text=(512, 12), embed=512)
    sizes = geometry(state, "ViT-B-32", folder)
    if bpe is not None:
        _write_vocabulary(folder, bpe)
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    sizes["text_config"] |= {"bos_token_id": vocabulary[START], "eos_token_id": vocabulary[END]}
    model = CLIPModel.from_pretrained(None, config=CLIPConfig(**sizes), state_dict=to_transformers(state))
    model.save_pretrained(folder)
    torch.save(state, folder / "open_clip.pt")


def _write_vocabulary(folder: Path, bpe: Path) -> None:
    vocabulary, merges = read_bpe(bpe)
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def open_clip_state(vision: tuple[int, int, int], text: tuple[int, int], embed: int) -> dict[str, torch.Tensor]:
    """Random weights under open_clip's names; vision is (width, layers, patch size), text (width, layers)."""
    torch.manual_seed(0)
    width, layers, patch = vision
    state = {
        "logit_scale": torch.tensor(4.6052),
        "visual.class_embedding": _random(width),
        "visual.positional_embedding": _random((224 // patch) ** 2 + 1, width),
        "visual.conv1.weight": _random(width, 3, patch, patch),
        "visual.proj": _random(width, embed),
        "token_embedding.weight": _random(VOCABULARY, text[0]),
        "positional_embedding": _random(CONTEXT, text[0]),
        "text_projection": _random(text[0], embed),
        **_norm("visual.ln_pre", width), **_norm("visual.ln_post", width), **_norm("ln_final", text[0]),
    }  # fmt: skip
    for tower, size, depth in (("visual.", width, layers), ("", *text)):
        for index in range(depth):
            state |= _block(f"{tower}transformer.resblocks.{index}", size)
    return state


def _block(name: str, width: int) -> dict[str, torch.Tensor]:
    return {
        **_norm(f"{name}.ln_1", width), **_norm(f"{name}.ln_2", width),
        f"{name}.attn.in_proj_weight": _random(3 * width, width), f"{name}.attn.in_proj_bias": _random(3 * width),
        f"{name}.attn.out_proj.weight": _random(width, width), f"{name}.attn.out_proj.bias": _random(width),
        f"{name}.mlp.c_fc.weight": _random(4 * width, width), f"{name}.mlp.c_fc.bias": _random(4 * width),
        f"{name}.mlp.c_proj.weight": _random(width, 4 * width), f"{name}.mlp.c_proj.bias": _random(width),
    }  # fmt: skip


def _norm(name: str, width: int) -> dict[str, torch.Tensor]:
    return {f"{name}.weight": torch.ones(width), f"{name}.bias": torch.zeros(width)}


def _random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape) * 0.03


CHECKPOINTS = {"clip": (clip, CLIP_SIDES)}
