"""One side of `scorers.py`, in a process and an interpreter of its own: runs a pass for each line that it reads.

    python benchmarks/scorer_sides.py SIDE SCORER CHECKPOINT BATCH

Answers with one line of JSON: seconds, CPU seconds and the scores of the pass.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from reward_service.testing.pictures import picture

Pass = Callable[[], list[float]]
SIDE_PX = 512


def pairs(count: int, turn: int) -> list[tuple[str, Image.Image]]:
    """Different prompts in every pass: nothing that is remembered of one helps the next."""
    return [
        (f"a photo of the red cat number {turn} {index} on a blue car", PICTURES[index % 16]) for index in range(count)
    ]


PICTURES = [picture(SIDE_PX, SIDE_PX, seed) for seed in range(16)]


def ours(scorer: str, checkpoint: str, batch: int) -> Pass:
    """The scorer as the service calls it: one batch of pictures and prompts."""
    score, items = _scorer(scorer, checkpoint), _items(batch)
    return lambda: _flat(score.score(next(items)))


def group(scorer: str, checkpoint: str, batch: int) -> Pass:
    """The same with one prompt for the whole batch, as RL has it."""
    from reward_service.scorers.base import ScoreItem

    score, items = _scorer(scorer, checkpoint), _items(batch)

    def run() -> list[float]:
        first, *rest = next(items)
        return _flat(score.score([first, *(ScoreItem([(first.text, item.image)]) for item in rest)]))

    return run


def one(scorer: str, checkpoint: str, batch: int) -> Pass:
    """The same pictures, one per call."""
    score, items = _scorer(scorer, checkpoint), _items(batch)
    return lambda: [value for item in next(items) for value in _flat(score.score([item]))]


def forward(scorer: str, checkpoint: str, batch: int) -> Pass:
    """The network alone, on pixels that are prepared already; for CLIP transformers' own forward."""
    score, items = _scorer(scorer, checkpoint), _items(batch)
    arrays = [score.prepare(item.image) for item in next(items)]
    if scorer in ("clip", "pickscore"):
        return _clip_forward(score, checkpoint, arrays, items)

    def run() -> list[float]:
        texts = [item.text for item in next(items)]
        with torch.inference_mode():
            return [float(value) for value in score.forward(texts, arrays).flatten()]

    return run


def _clip_forward(score: Any, checkpoint: str, arrays: Any, items: Any) -> Pass:
    from transformers import CLIPModel, CLIPTokenizer

    from reward_service.models.pixels import OPENAI_MEAN, OPENAI_STD, Normalise, stack

    model, tokenizer = CLIPModel.from_pretrained(checkpoint).eval(), CLIPTokenizer.from_pretrained(checkpoint)
    cpu = torch.device("cpu")
    pixels = Normalise(OPENAI_MEAN, OPENAI_STD, cpu)(stack(arrays, cpu))
    inputs = [tokenizer([i.text for i in next(items)], padding=True, return_tensors="pt") for _ in range(2)]

    @torch.inference_mode()
    def run() -> list[float]:
        inputs.reverse()
        return (model(pixel_values=pixels, **inputs[0]).logits_per_image.diag() / score.divide_by).tolist()

    return run


def reference(scorer: str, checkpoint: str, batch: int) -> Pass:
    """The published code's loop: processor and model, one pair at a time, texts padded to the context."""
    from transformers import CLIPModel, CLIPProcessor

    model = CLIPModel.from_pretrained(checkpoint).eval()
    processor = CLIPProcessor.from_pretrained(checkpoint, use_fast=False)
    turn = iter(range(1_000_000))

    @torch.inference_mode()
    def run() -> list[float]:
        values = []
        for text, image in pairs(batch, next(turn)):
            inputs = processor(text=[text], images=[image], return_tensors="pt", padding="max_length", truncation=True)
            values.append(model(**inputs).logits_per_image[0, 0].item() / 30)
        return values

    return run


def open_clip(scorer: str, checkpoint: str, batch: int) -> Pass:
    """open_clip used directly: its transform, its tokenizer, its two towers, a batch at a time."""
    import open_clip as library

    model, _, transform = library.create_model_and_transforms("ViT-B-32-quickgelu", pretrained=None)
    model.load_state_dict(torch.load(Path(checkpoint) / "open_clip.pt", weights_only=True))
    model.eval()
    tokenizer = library.get_tokenizer("ViT-B-32")
    turn = iter(range(1_000_000))

    @torch.inference_mode()
    def run() -> list[float]:
        texts, images = zip(*pairs(batch, next(turn)), strict=True)
        pictures = model.encode_image(torch.stack([transform(image) for image in images]), normalize=True)
        words = model.encode_text(tokenizer(texts), normalize=True)
        return ((pictures * words).sum(-1) * model.logit_scale.exp() / 30).tolist()

    return run


def infinity(scorer: str, checkpoint: str, batch: int) -> Pass:
    """infinity_emb's CLIP model used directly: preprocessing, core and postprocessing of a batch."""
    from infinity_emb.args import EngineArgs
    from infinity_emb.transformer.vision.torch_vision import TIMM

    arguments = EngineArgs(
        model_name_or_path=checkpoint, device="cpu", engine="torch", dtype="float32", bettertransformer=False
    )
    model = TIMM(engine_args=arguments)
    scale = float(model.model.logit_scale.exp())
    turn = iter(range(1_000_000))

    def run() -> list[float]:
        texts, images = zip(*pairs(batch, next(turn)), strict=True)
        rows = model.encode_post(model.encode_core(model.encode_pre([*images, *texts])))
        unit = torch.nn.functional.normalize(torch.tensor(np.asarray(rows)), dim=-1)
        return ((unit[:batch] * unit[batch:]).sum(-1) * scale / 30).tolist()

    return run


def _scorer(name: str, checkpoint: str) -> Any:
    from reward_service.scorers.registry import get_scorer_cls

    return get_scorer_cls(name)(weights_path=checkpoint, device="cpu")


def _items(batch: int) -> Any:
    from reward_service.scorers.base import ScoreItem

    return ([ScoreItem([pair]) for pair in pairs(batch, turn)] for turn in range(1_000_000))


def _flat(entries: Any) -> list[float]:
    return [value for entry in entries for value in entry.values()]


SIDES = {side.__name__: side for side in (ours, group, one, forward, reference, open_clip, infinity)}


def main() -> None:
    side, scorer, checkpoint, batch = sys.argv[1:]
    torch.set_num_threads(2)
    run = SIDES[side](scorer, checkpoint, int(batch))
    for _ in sys.stdin:
        started, cpu = time.perf_counter(), time.process_time()
        values = run()
        spent = {"s": time.perf_counter() - started, "cpu": time.process_time() - cpu, "values": values}
        print("\n" + json.dumps(spent), flush=True)


if __name__ == "__main__":
    main()
