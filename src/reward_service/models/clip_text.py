"""Texts for CLIP: the byte-pair tokens of transformers' processors, or of open_clip and the original CLIP."""

from __future__ import annotations

import gzip
import html
import importlib.util
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from reward_service.errors import ScorerLoadError
from reward_service.models.sources import weights_folder

CONTEXT = 77
VOCABULARY_REPO = "openai/clip-vit-large-patch14"
BPE_FILE = "bpe_simple_vocab_16e6.txt.gz"
# CLIP uses so many of that file: its 49,408 tokens less 256 bytes, 256 bytes that end a word, and 2 specials.
BPE_MERGES = 49152 - 256 - 2
START, END = "<|startoftext|>", "<|endoftext|>"
FOLDER_FILES = ("tokenizer.json|vocab.json",)


class ClipTokenizer:
    """Texts to token ids, cut to the context with the end token kept, padded to the longest of the call.

    The end token is where CLIP reads its answer, and attention is causal: what follows it changes nothing, so
    that no text is padded to the whole context. Safe to call from several threads.
    """

    def __init__(self, tokenizer: Any, clean: Callable[[str], str] | None = None, context: int = CONTEXT) -> None:
        self._tokenizer = tokenizer
        self._clean = clean
        self.context = context
        # The library's tokenizers keep truncation and padding as state and refuse a second caller meanwhile.
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Ids and attention mask, int64 [B, L], L at most the context."""
        # Half of a surrogate pair is no character, and the tokenizer raises for it.
        texts = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        cleaned = [self._clean(text) if self._clean else text for text in texts]
        with self._lock:
            found = self._tokenizer(
                cleaned, padding=True, truncation=True, max_length=self.context, return_tensors="pt"
            )
        return found["input_ids"], found["attention_mask"]


def folder_tokenizer(folder: Path, context: int = CONTEXT) -> ClipTokenizer:
    """The tokenizer of a model folder in transformers' layout, as its processor uses it."""
    return ClipTokenizer(_load(folder), context=context)


def open_clip_tokenizer(
    tokenizer_path: str | None, beside: Path | None = None, context: int = CONTEXT
) -> ClipTokenizer:
    """The tokenizer of open_clip and of the original CLIP.

    Texts are repaired (ftfy), unescaped twice, stripped of superfluous white space and put into lower case. The
    vocabulary is *tokenizer_path* (a file or folder), else what lies *beside* the weights, else an installed
    open_clip's, else the hub's. Raises FileNotFoundError when it is in none of these places.
    """
    try:
        import ftfy
    except ImportError as error:
        raise ScorerLoadError(f"{error}: texts are repaired with ftfy; install 'reward-service[models]'") from error

    def clean(text: str) -> str:
        unescaped = html.unescape(html.unescape(ftfy.fix_text(text)))
        return re.sub(r"\s+", " ", unescaped.strip()).strip().lower()

    return ClipTokenizer(_load(_vocabulary(tokenizer_path, beside)), clean, context)


def _vocabulary(tokenizer_path: str | None, beside: Path | None) -> Path:
    if tokenizer_path is not None:
        path = Path(tokenizer_path).expanduser()
        if not path.exists():
            raise FileNotFoundError(f"tokenizer_path is {path}, and nothing is there; correct it, or remove it")
        return path
    for place in _installed(beside):
        if place.is_file() or (place / "vocab.json").is_file() or (place / "tokenizer.json").is_file():
            return place
    try:
        return weights_folder(None, VOCABULARY_REPO, FOLDER_FILES, ("merges.txt", "tokenizer*", "special*", "vocab*"))
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"no CLIP vocabulary beside the weights, and {error}. Or put {BPE_FILE} (it is part of open_clip_torch)"
            " beside the weights, or give it as tokenizer_path"
        ) from error


def _installed(beside: Path | None) -> list[Path]:
    places = [] if beside is None else [beside / BPE_FILE, beside]
    # Found without importing the package, which needs torchvision.
    spec = importlib.util.find_spec("open_clip")
    if spec is not None and spec.origin is not None:
        places.append(Path(spec.origin).parent / BPE_FILE)
    return places


def _load(place: Path) -> Any:
    from transformers import CLIPTokenizer

    try:
        if place.is_file():
            vocab, merges = read_bpe(place)
            return CLIPTokenizer(vocab=vocab, merges=merges)
        return CLIPTokenizer.from_pretrained(place, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ScorerLoadError(f"{place} holds no CLIP tokenizer: {error}") from error


def read_bpe(path: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of the original CLIP's gzipped list of merges."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read(64 * 2**20).split("\n")[1 : BPE_MERGES + 1]
    merges = [(first, second) for first, _, second in (line.partition(" ") for line in lines)]
    symbols = byte_symbols()
    tokens = [*symbols, *(symbol + "</w>" for symbol in symbols), *("".join(pair) for pair in merges), START, END]
    return {token: index for index, token in enumerate(tokens)}, merges


def byte_symbols() -> list[str]:
    """The 256 characters that stand for bytes in byte-level BPE, in CLIP's order."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + index) for index in range(len(others))]
