"""A tiny PickScore: a CLIP in transformers' layout with GELU, as the ViT-H/14 that it was trained from."""

from __future__ import annotations

from pathlib import Path

from reward_service.testing.tiny import clip


def build(folder: Path, seed: int = 1) -> None:
    """Config, safetensors, tokenizer and image processor files."""
    clip.build(folder, seed, activation="gelu")
