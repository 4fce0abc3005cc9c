"""Text rendering: does the picture show the words that the prompt asks for?

The formula of Flow-GRPO's OCR reward (Liu et al., arXiv 2505.05470): one minus the edit distance to the
quoted text, relative to its length. The words are read by RapidOCR, which runs PP-OCRv6 on onnxruntime; its
weights (PaddleOCR, Apache-2.0) ship inside the package.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from reward_service.errors import BadMedia, ItemError, ScorerLoadError
from reward_service.scorers.base import ItemScorer, ScoreItem
from reward_service.scorers.registry import register

if TYPE_CHECKING:
    from PIL.Image import Image

# Four corners (x, y) of a piece of text: upper left, upper right, lower right, lower left.
Quad = Sequence[Sequence[float]]

# The detector resizes to multiples of 32: at 320 and 1:16 the shorter side still gets some pixels.
MIN_DETECTION_SIDE = 320
MAX_ASPECT = 16
DETECTION_WEIGHTS = "PP-OCRv6_det_small.onnx"
RECOGNITION_WEIGHTS = "PP-OCRv6_rec_small.onnx"


class Reader(Protocol):
    """What finds the words in a picture."""

    def read(self, image: Image) -> str:
        """All text in *image* in reading order, "" if there is none; raises ItemError when reading fails."""


@register("ocr")
class OcrScorer(ItemScorer):
    """1 when the target is found in what is read, down to 0 as the edit distance grows; see `text_reward`.

    backend: who reads; the other parameters are that backend's.
    """

    sub_metric_names = ("ocr",)
    max_batch_size = 8

    def __init__(self, backend: str = "rapidocr", **params: Any) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"scorer 'ocr': no backend {backend!r}; choose one of: {', '.join(BACKENDS)}")
        self._reader: Reader = BACKENDS[backend](**params)

    def score_item(self, item: ScoreItem) -> dict[str, float]:
        return {"ocr": text_reward(target_text(item.text), self._reader.read(item.required_image()))}

    def warmup(self) -> None:
        from PIL import Image

        self._reader.read(Image.new("RGB", (512, 512), "white"))


class RapidOcrReader:
    """PP-OCRv6 "small" on the CPU.

    num_threads: CPU threads of onnxruntime and OpenCV; OpenCV's setting holds for the whole process.
    det_max_side: text is looked for in a copy of the picture whose longest side has at most so many pixels.
    min_confidence: pieces of text that are read with less are dropped.
    """

    def __init__(
        self,
        num_threads: int = 1,
        det_max_side: int = 736,
        min_confidence: float = 0.5,
    ) -> None:
        if num_threads < 1:
            raise ValueError(f"num_threads is {num_threads!r}; give at least 1")
        if det_max_side < MIN_DETECTION_SIDE:
            raise ValueError(f"det_max_side is {det_max_side!r}; give at least {MIN_DETECTION_SIDE}")
        if not 0 <= min_confidence <= 1:
            raise ValueError(f"min_confidence is {min_confidence!r}; give a number from 0 to 1")
        self._engine = _rapidocr_engine(
            num_threads,
            {
                "Det.limit_side_len": det_max_side,
                "Det.limit_type": "max",
                "Global.text_score": min_confidence,
                # No angle classifier: words that stand upside down are not put right first.
                "Global.use_cls": False,
                "Global.log_level": "error",
            },
        )

    def read(self, image: Image) -> str:
        import numpy as np

        if max(image.size) > MAX_ASPECT * min(image.size):
            raise BadMedia(f"the image is {image.width}×{image.height}; ocr takes sides of up to 1:{MAX_ASPECT}")
        try:
            found = self._engine(np.ascontiguousarray(np.asarray(image)[:, :, ::-1]))
            # RapidOCR swallows a failure after detection: its answer then has boxes and no texts.
            texts, boxes = found.txts, found.boxes
        except Exception as error:
            # The cause's message may hold a traceback with paths: it stays in the log.
            raise ItemError(
                f"rapidocr failed on the {image.width}×{image.height} image with {type(error).__name__};"
                " the service's log has the traceback"
            ) from error
        return " ".join(texts[index] for index in reading_order(boxes)) if texts else ""


BACKENDS: dict[str, Any] = {"rapidocr": RapidOcrReader}


def _rapidocr_engine(num_threads: int, params: dict[str, Any]) -> Any:
    try:
        import cv2
        import rapidocr
        from omegaconf import flag_override
        from rapidocr import RapidOCR
    except ImportError as error:
        raise ScorerLoadError(
            f"scorer 'ocr': {error}. Install 'reward-service[demo]' or set runtime_env: envs/ocr.txt"
        ) from error
    cv2.setNumThreads(num_threads)
    engine = RapidOCR(params=params)
    weights = Path(rapidocr.__file__).parent / "models"
    # Sessions of ours: RapidOCR's own spin while they wait, and download what they do not find.
    with flag_override(engine.cfg, "allow_objects", True):
        engine.cfg.Det.session = _onnx_session(weights / DETECTION_WEIGHTS, num_threads)
        engine.cfg.Rec.session = _onnx_session(weights / RECOGNITION_WEIGHTS, num_threads)
    return engine


def _onnx_session(weights: Path, num_threads: int) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ScorerLoadError(
            f"scorer 'ocr': {error}. Install 'reward-service[demo]' or set runtime_env: envs/ocr.txt"
        ) from error
    if not weights.is_file():
        raise ScorerLoadError(f"scorer 'ocr': rapidocr ships no {weights.name}; install rapidocr==3.10.0")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # pictures differ in size: an arena keeps the largest of each
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])


def target_text(prompt: str) -> str:
    """What *prompt* wants written: its first ``"…"`` span, else its first ``'…'`` span, else all of it."""
    for quoted in (r'"([^"]*)"', r"'([^']*)'"):
        if span := re.search(quoted, prompt):
            return span[1]
    return prompt


def text_reward(target: str, recognised: str) -> float:
    """1 if *target* is within *recognised*, else 1 - min(distance, n) / n for n characters of *target*.

    Both are compared without ASCII spaces and in lower case; an empty target is always met.
    """
    wanted, got = (text.replace(" ", "").lower() for text in (target, recognised))
    if wanted in got:
        return 1.0
    return 1.0 - min(edit_distance(wanted, got), len(wanted)) / len(wanted)


def edit_distance(a: str, b: str) -> int:
    """Levenshtein distance of *a* and *b*.

    Myers' bit-vector algorithm (JACM 1999) in Hyyrö's form: a whole column of the table is one integer, so
    that long texts stay cheap in plain Python.
    """
    if not a:
        return len(b)
    occurrences: dict[str, int] = {}
    for row, char in enumerate(a):
        occurrences[char] = occurrences.get(char, 0) | 1 << row
    every, last = (1 << len(a)) - 1, 1 << (len(a) - 1)
    rises, falls, distance = every, 0, len(a)  # vertical differences of the current column
    for char in b:
        equal = occurrences.get(char, 0)
        diagonal = (((equal & rises) + rises) ^ rises) | equal | falls
        grows = falls | (every & ~(diagonal | rises))  # horizontal differences
        shrinks = rises & diagonal
        distance += bool(grows & last) - bool(shrinks & last)
        grows = grows << 1 | 1
        rises = every & (shrinks << 1 | ~(diagonal | grows))
        falls = every & grows & diagonal
    return distance


def reading_order(boxes: Sequence[Quad]) -> list[int]:
    """Indices of *boxes* from top to bottom, and from left to right within a line.

    A box belongs to a line when its middle lies within the height of the line's first box, or that one's
    middle within its own: words of one line keep their order in spite of descenders, sizes and a slight tilt.
    """
    spans = [(min(y for _, y in box), max(y for _, y in box), min(x for x, _ in box)) for box in boxes]
    lines: list[list[int]] = []
    line_middle = line_bottom = float("-inf")
    for index in sorted(range(len(spans)), key=lambda index: spans[index][0] + spans[index][1]):
        top, bottom, _ = spans[index]
        middle = (top + bottom) / 2
        if middle > line_bottom and top > line_middle:
            lines.append([])
            line_middle, line_bottom = middle, bottom
        lines[-1].append(index)
    return [index for line in lines for index in sorted(line, key=lambda index: spans[index][2])]
