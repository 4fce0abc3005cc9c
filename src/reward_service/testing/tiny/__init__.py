"""Tiny random checkpoints in the layouts of the published ones, for tests and for trying a configuration.

Numbers come from numpy's generator in the order of the sorted keys, so that a seed gives the same weights under
every release of torch. This package runs on Python 3.10 and needs numpy; its modules need torch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

_NORM = re.compile(r"(^|[._])(ln_?\w*|\w*norm\w*|LayerNorm)\d*\.weight$", re.IGNORECASE)
_WORDS = ("the", "a", "of", "red", "cat", "dog", "photo", "circle", "blue", "car", "with", "and", "on", "in")
_START, _END = "<|startoftext|>", "<|endoftext|>"


def fill(shapes: Mapping[str, Sequence[int]], seed: int, std: float = 0.05) -> dict[str, np.ndarray]:
    """Random float32 arrays of *shapes*: weights of norms around 1, everything else around 0."""
    random = np.random.default_rng(seed)
    arrays = {}
    for name in sorted(shapes):
        values = random.standard_normal(tuple(shapes[name])) * std
        is_norm = len(shapes[name]) == 1 and _NORM.search(name) is not None
        arrays[name] = np.asarray(values + 1.0 if is_norm else values, dtype=np.float32)
    return arrays


def write_clip_vocabulary(folder: Path) -> int:
    """vocab.json and merges.txt of a small byte-level BPE as CLIP has it; returns the number of tokens."""
    symbols = byte_symbols()
    merges = list(dict.fromkeys(pair for word in _WORDS for pair in _merges_of(word)))
    tokens = [*symbols, *(symbol + "</w>" for symbol in symbols), *("".join(pair) for pair in merges), _START, _END]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *(f"{first} {second}" for first, second in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({
            "tokenizer_class": "CLIPTokenizer", "model_max_length": 77, "bos_token": _START, "eos_token": _END,
            "unk_token": _END, "pad_token": _END,
        }),
        encoding="utf-8",
    )  # fmt: skip
    return len(vocabulary)


def _merges_of(word: str) -> list[tuple[str, str]]:
    pieces = [*word[:-1], word[-1] + "</w>"]
    merges = []
    while len(pieces) > 1:
        merges.append((pieces[0], pieces[1]))
        pieces[:2] = ["".join(pieces[:2])]
    return merges


def byte_symbols() -> list[str]:
    """One printable character per byte, as byte-level BPE writes them."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def write_bert_vocabulary(folder: Path, extra: Iterable[str] = ()) -> int:
    """vocab.txt and tokenizer_config.json of a small WordPiece; *extra* stand last. Returns the size."""
    letters = [chr(code) for code in range(0x21, 0x7F) if not chr(code).isupper()]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *("##" + letter for letter in letters)]
    tokens += [word for word in _WORDS if len(word) > 1]
    tokens += extra
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    config = {"tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 512}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return len(tokens)
