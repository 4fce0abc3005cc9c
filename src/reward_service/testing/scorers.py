"""Scorers that behave, and misbehave, on command: for tests, examples and benchmarks.

Name them in a config as ``reward_service.testing.scorers:Noop``. Standard library and Pillow, Python 3.10.
"""

from __future__ import annotations

import os
import time
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


class Scripted(BaseScorer):
    """Does what each prompt says, and appends every prompt it sees to the file *record*.

    Prompts: ``raise``, ``nan``, ``inf``, ``text``, ``bool``, ``none``, ``empty``, ``exit`` (the process leaves),
    ``kill`` (SIGKILL), ``hang``, ``short`` (the batch gets one result too few), ``sleep:SECONDS``,
    ``oom:N`` (out of memory unless the batch has at most N items); anything else scores 1.0.
    With *wait_for*, scoring starts once that file exists.
    """

    sub_metric_names = ("value",)

    def __init__(
        self, record: str | None = None, wait_for: str | None = None, fail: str | None = None
    ) -> None:
        if fail is not None:
            raise RuntimeError(fail)
        self._record = record
        self._wait_for = wait_for

    def score(self, items: list[ScoreItem]) -> list[Any]:
        if self._record is not None:
            with open(self._record, "a", encoding="utf-8") as file:
                file.writelines(f"{len(items)}\t{item.text}\n" for item in items)
        while self._wait_for is not None and not Path(self._wait_for).exists():
            time.sleep(0.005)
        results = [self._one(item.text, len(items)) for item in items]
        return results[:-1] if any(item.text == "short" for item in items) else results

    def _one(self, prompt: str, batch: int) -> Any:
        word, _, argument = prompt.partition(":")
        if word == "exit":
            os._exit(7)
        if word == "kill":
            os.kill(os.getpid(), 9)
        if word == "raise":
            raise ValueError("asked to raise")
        if word == "hang":
            time.sleep(3600)
        if word == "oom" and batch > int(argument):
            raise RuntimeError("CUDA out of memory (scripted)")
        if word == "sleep":
            time.sleep(float(argument))
        values: dict[str, Any] = {
            "nan": float("nan"), "inf": float("inf"), "text": "great", "bool": True, "none": None,
        }  # fmt: skip
        if word == "empty":
            return {}
        return {"value": values.get(word, 1.0)}
