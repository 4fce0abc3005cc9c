"""Runs a scorer on a batch so that one bad item never hurts its neighbours.

This module runs in scorer processes: standard library only, Python 3.10.
"""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from reward_service.scorers.base import ScoreItem

# One entry per item: {"s": {sub: float | None}, "n": {sub: "nan"}} or {"e": [class, message], "tb": text}.
Entry = dict[str, Any]
TRACEBACK_CHARS = 8_000
MESSAGE_CHARS = 2_000


class BatchRunner:
    """Calls ``scorer.score`` in batches of at most `limit`, splitting what fails until the guilty stand alone.

    Out of memory halves `limit` for good.
    """

    def __init__(self, scorer: Any, limit: int) -> None:
        self._scorer = scorer
        self.limit = max(1, limit)

    def run(self, items: list[ScoreItem]) -> list[Entry]:
        """One entry per item, in order; never raises for what a scorer does."""
        entries: list[Entry] = []
        while len(entries) < len(items):
            start = len(entries)
            entries += self._attempt(items[start : start + self.limit])
        return entries

    def _attempt(self, items: list[ScoreItem]) -> list[Entry]:
        try:
            return entries_of(self._scorer.score(items), len(items))
        except Exception as error:
            if len(items) == 1:
                return [error_entry(error)]
            middle = len(items) // 2
            if out_of_memory(error):
                self.limit = min(self.limit, middle)
                release_cached_memory()
        # Through `run`, which heeds the limit that the first half may have lowered.
        return self.run(items[:middle]) + self.run(items[middle:])


def entries_of(results: object, count: int) -> list[Entry]:
    """Check what a scorer returned for *count* items; raises TypeError or ValueError for a wrong shape."""
    if isinstance(results, (str, bytes, Mapping)) or not isinstance(results, Sequence):
        raise TypeError(f"score() returned {type(results).__name__}; expected a list with one dict per item")
    if len(results) != count:
        raise ValueError(f"score() returned {len(results)} results for {count} items")
    return [_entry(result) for result in results]


def _entry(result: object) -> Entry:
    if isinstance(result, Exception):
        return error_entry(result)
    try:
        return _scores(result)
    except TypeError as error:
        return error_entry(error)


def _scores(result: object) -> Entry:
    if not isinstance(result, Mapping):
        raise TypeError(f"a result is {type(result).__name__}; expected a dict of sub-metrics")
    if not result:
        raise TypeError("a result has no sub-metric")
    scores: dict[str, float | None] = {}
    not_finite: dict[str, str] = {}
    for name, value in result.items():
        number = _number(name, value)
        if math.isfinite(number):
            scores[str(name)] = number
        else:
            scores[str(name)] = None
            not_finite[str(name)] = repr(number)
    return {"s": scores, "n": not_finite} if not_finite else {"s": scores}


def _number(name: object, value: object) -> float:
    kind = type(value)
    if kind is float:
        return value  # type: ignore[return-value]
    # bool is an int to Python and a bug to a reward; numpy and torch scalars have __float__.
    if kind is bool or isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError(f"sub-metric {name!r} is {_short(repr(value), 80)} ({kind.__name__}), not a number")
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise TypeError(f"sub-metric {name!r} is not a number: {error}") from error


def error_entry(error: BaseException) -> Entry:
    """*error* as data: class, message, traceback (the gateway keeps the traceback to itself)."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"e": [type(error).__name__, _short(str(error), MESSAGE_CHARS)], "tb": text[-TRACEBACK_CHARS:]}


def out_of_memory(error: BaseException) -> bool:
    """Whether a smaller batch may succeed where this one failed."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or "out of memory" in str(error).lower()
    )


def unusable_device(kind: str, message: str) -> bool:
    """Whether the process's CUDA context is lost, so that only a new process can score again.

    *kind* is the exception's class: only torch's say so, others may quote a prompt that does.
    """
    lowered = message.lower()
    return kind in ("RuntimeError", "AcceleratorError") and (
        "device-side assert" in lowered
        or ("cuda error" in lowered and "out of memory" not in lowered and "invalid argument" not in lowered)
    )


def release_cached_memory() -> None:
    """Give torch's cached blocks back, when torch is in use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
