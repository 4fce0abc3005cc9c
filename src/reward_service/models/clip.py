"""CLIP's two towers on transformers, from its own layout or from open_clip's, with unit features in float32."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import CLIPConfig, CLIPModel

from reward_service.models.checkpoint import check_keys, from_pretrained
from reward_service.models.clip_keys import geometry, to_transformers
from reward_service.models.clip_text import ClipTokenizer, folder_tokenizer
from reward_service.models.pixels import OPENAI_MEAN, OPENAI_STD, Normalise

CACHED_TEXTS = 4096


class ClipTowers:
    """Encodes pictures and texts into one space.

    Features are L2-normalised float32, so that their product is the cosine. Texts are encoded once: RL asks for many
    pictures of one prompt. Safe to use from several threads.
    """

    def __init__(self, model: Any, tokenizer: ClipTokenizer, device: torch.device, compile: bool = False) -> None:
        self._model = model.to(device)
        self._tokenizer = tokenizer
        self._device = device
        self.image_size: int = model.config.vision_config.image_size
        self.logit_scale = float(model.logit_scale.detach().float().exp())
        self._normalise = Normalise(OPENAI_MEAN, OPENAI_STD, device, model.dtype)
        self._vision = torch.compile(self._image_embedding, dynamic=True) if compile else self._image_embedding
        self._texts: OrderedDict[str, torch.Tensor] = OrderedDict()
        self._lock = threading.Lock()

    @torch.inference_mode()
    def encode_images(self, pixels: torch.Tensor) -> torch.Tensor:
        """[B, D] of uint8 pictures [B, 3, S, S], or of pictures that are normalised already (floating point)."""
        if not pixels.is_floating_point():
            pixels = self._normalise(pixels)
        return _unit(self._vision(pixels.to(self._device, self._model.dtype)))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """[B, D]; texts over the context are cut with their end token kept."""
        with self._lock:
            known = {text: self._texts[text] for text in set(texts) if text in self._texts}
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            ids, mask = self._tokenizer(new)
            features = _unit(self._text_embedding(ids.to(self._device), mask.to(self._device)))
            known.update(zip(new, features, strict=True))
        self._remember(known)
        return torch.stack([known[text] for text in texts])

    def _image_embedding(self, pixels: torch.Tensor) -> torch.Tensor:
        pooled = self._model.vision_model(pixel_values=pixels).pooler_output
        return self._model.visual_projection(pooled)

    def _text_embedding(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        pooled = self._model.text_model(input_ids=ids, attention_mask=mask).pooler_output
        return self._model.text_projection(pooled)

    def _remember(self, known: dict[str, torch.Tensor]) -> None:
        with self._lock:
            for text, feature in known.items():
                # A copy: a row of the batch would keep the whole batch alive.
                self._texts[text] = feature if text in self._texts else feature.clone()
                self._texts.move_to_end(text)
            while len(self._texts) > CACHED_TEXTS:
                self._texts.popitem(last=False)


def _unit(features: torch.Tensor) -> torch.Tensor:
    features = features.float()
    return features / features.norm(dim=-1, keepdim=True)


def clip_from_folder(folder: Path, device: torch.device, dtype: torch.dtype, compile: bool = False) -> ClipTowers:
    """The towers of a CLIPModel folder in transformers' layout, with the tokenizer in it."""
    model = from_pretrained(CLIPModel, folder, dtype)
    context = model.config.text_config.max_position_embeddings
    return ClipTowers(model, folder_tokenizer(folder, context), device, compile)


def clip_from_open_clip(
    state: dict[str, torch.Tensor], arch: str, tokenizer: ClipTokenizer, device: torch.device, dtype: torch.dtype,
    *, source: Path, compile: bool = False,
) -> ClipTowers:  # fmt: skip
    """The towers of a checkpoint in open_clip's layout, or the original CLIP's.

    arch: an open_clip name that `clip_keys.ARCHITECTURES` knows, ValueError otherwise. Sizes are read from *state*;
    keys that do not fit are a ScorerLoadError.
    """
    config = CLIPConfig(**geometry(state, arch, source), attn_implementation="sdpa")
    mapped = to_transformers(state)
    with torch.device("meta"):
        expected = CLIPModel(config).state_dict()
    check_keys(expected, mapped, source)
    model = CLIPModel.from_pretrained(None, config=config, state_dict=mapped, dtype=dtype)
    return ClipTowers(model.eval().requires_grad_(False), tokenizer, device, compile)
