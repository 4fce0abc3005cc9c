"""Scorers that behave, and misbehave, on command: for tests, examples and benchmarks.

Name them in a config as ``reward_service.testing.scorers:Noop``. Standard library and Pillow, Python 3.10.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from pathlib import Path
from typing import Any

from reward_service.scorers.base import BaseScorer, ScoreItem


class Noop(BaseScorer):
    """Length of the prompt; never looks at the image."""

    sub_metric_names = ("noop",)

    def score(self, items: list[ScoreItem]) -> list[dict[str, float]]:
        return [{"noop": float(len(item.text))} for item in items]


class Sleep(BaseScorer):
    """A model that takes *base_s* + *per_item_s* × n for a batch; answers the size of the batch."""

    sub_metric_names = ("sleep",)

    def __init__(self, base_s: float = 0.005, per_item_s: float = 0.001) -> None:
        self._base_s = base_s
        self._per_item_s = per_item_s

    def score(self, items: list[ScoreItem]) -> list[dict[str, float]]:
        time.sleep(self._base_s + self._per_item_s * len(items))
        return [{"sleep": float(len(items))} for _ in items]


class MeanColour(BaseScorer):
    """Mean of the picture shrunk to 32 × 32, in [0, 255]: the cheapest reward that reads every pixel."""

    sub_metric_names = ("mean",)

    def score(self, items: list[ScoreItem]) -> list[dict[str, float]]:
        scores = []
        for item in items:
            if item.image is None:
                raise ValueError("no image in the last turn")
            small = item.image.resize((32, 32)).convert("L")
            scores.append({"mean": sum(small.tobytes()) / 1024.0})
        return scores


class Checksum(BaseScorer):
    """CRC-32 of the last turn's pixels and of its video file; 0 for what is absent."""

    sub_metric_names = ("image", "video")

    def score(self, items: list[ScoreItem]) -> list[dict[str, float]]:
        return [{"image": float(self._image(item)), "video": float(self._video(item))} for item in items]

    @staticmethod
    def _image(item: ScoreItem) -> int:
        return 0 if item.image is None else zlib.crc32(item.image.tobytes())

    @staticmethod
    def _video(item: ScoreItem) -> int:
        video = item.videos[-1] if item.videos else None
        if video is None:
            return 0
        return zlib.crc32(video if isinstance(video, bytes) else video.read_bytes())


class Scripted(BaseScorer):
    """Does what each prompt says, and appends every prompt it sees to the file *record*.

    Prompts: ``raise``, ``raise:TEXT``, ``surrogate`` (raises with text that is not valid Unicode), ``nan``,
    ``inf``, ``text``, ``bool``, ``none``, ``empty``, ``two`` (two sub-metrics, not in alphabetical order),
    ``exit`` (the process leaves), ``sysexit`` (raises SystemExit), ``kill`` (SIGKILL), ``hang``, ``short``
    and ``long`` (the batch gets one result too few, too many), ``nothing`` (the batch gets None),
    ``sleep:SECONDS``, ``until:FILE`` (waits for it), ``oom:N`` (out of memory unless the batch has at most N
    items); anything else scores 1.0.

    With *wait_for*, scoring starts once that file exists; with *build_after*, the constructor waits for one.
    *hooks* is a file that gets a line for each of ``built``, ``warmup``, ``close``.
    """

    sub_metric_names = ("value",)

    def __init__(
        self,
        record: str | None = None,
        wait_for: str | None = None,
        fail: str | None = None,
        build_after: str | None = None,
        hooks: str | None = None,
    ) -> None:
        if fail is not None:
            raise RuntimeError(fail)
        self._record = record
        self._wait_for = wait_for
        self._hooks = hooks
        _wait_for_file(build_after)
        self._note("built")

    def warmup(self) -> None:
        self._note("warmup")

    def close(self) -> None:
        self._note("close")

    def _note(self, word: str) -> None:
        if self._hooks is not None:
            with open(self._hooks, "a", encoding="utf-8") as file:
                file.write(f"{word}\n")

    def score(self, items: list[ScoreItem]) -> Any:
        if self._record is not None:
            with open(self._record, "a", encoding="utf-8") as file:
                file.write("".join(f"{len(items)}\t{item.text}\n" for item in items))
        _wait_for_file(self._wait_for)
        results = [self._one(item.text, len(items)) for item in items]
        prompts = {item.text for item in items}
        if "nothing" in prompts:
            return None
        return (results + results[:1] * ("long" in prompts))["short" in prompts :]

    def _one(self, prompt: str, batch: int) -> Any:
        word, _, argument = prompt.partition(":")
        self._misbehave(word, argument)
        if word == "oom" and batch > int(argument):
            raise RuntimeError("CUDA out of memory (scripted)")
        if word == "sleep":
            time.sleep(float(argument))
        if word == "until":
            _wait_for_file(argument)
        values: dict[str, Any] = {
            "nan": float("nan"), "inf": float("inf"), "text": "great", "bool": True, "none": None,
        }  # fmt: skip
        whole: dict[str, Any] = {"empty": {}, "two": {"zeta": 2.0, "alpha": 1.0}}
        return whole.get(word, {"value": values.get(word, 1.0)})

    def _misbehave(self, word: str, argument: str) -> None:
        if word == "exit":
            os._exit(7)
        if word == "sysexit":
            sys.exit("asked to leave")
        if word == "kill":
            os.kill(os.getpid(), 9)
        if word == "raise":
            raise ValueError(argument or "asked to raise")
        if word == "surrogate":
            raise ValueError("asked to raise \udc80")
        if word == "hang":
            time.sleep(3600)


def _wait_for_file(path: str | None) -> None:
    while path is not None and not Path(path).exists():
        time.sleep(0.005)
