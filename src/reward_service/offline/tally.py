"""What a finished run amounts to: per sub-metric the numbers, their extremes, and what failed."""

from __future__ import annotations

import heapq
import math
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from reward_service.offline.journal import Entry

SHOWN_EXTREMES = 6
# Messages may hold file names, so their number is bounded only here.
_MAX_MESSAGES = 1000


@dataclass(frozen=True)
class Stats:
    """Of the finite values; all NaN without any. std: of the population; quartiles interpolate linearly."""

    count: int
    failed: int
    mean: float
    std: float
    minimum: float
    quarter: float
    median: float
    three_quarters: float
    maximum: float


@dataclass
class Metric:
    """One sub-metric. lowest, highest: ``(value, row)``, the most extreme first."""

    values: array[float] = field(default_factory=lambda: array("d"))
    _low: list[tuple[float, int]] = field(default_factory=list)
    _high: list[tuple[float, int]] = field(default_factory=list)

    def add(self, value: float, row: int) -> None:
        """Take one value into account."""
        self.values.append(value)
        _keep(self._low, (-value, -row))
        _keep(self._high, (value, -row))

    @property
    def lowest(self) -> list[tuple[float, int]]:
        """The smallest values with their rows."""
        return [(-value, -row) for value, row in sorted(self._low, reverse=True)]

    @property
    def highest(self) -> list[tuple[float, int]]:
        """The largest values with their rows."""
        return [(value, -row) for value, row in sorted(self._high, reverse=True)]

    def stats(self, rows: int) -> Stats:
        """The statistics, among *rows* rows altogether."""
        count = len(self.values)
        if not count:
            nan = math.nan
            return Stats(0, rows, nan, nan, nan, nan, nan, nan, nan)
        mean = math.fsum(self.values) / count
        std = math.sqrt(math.fsum((value - mean) ** 2 for value in self.values) / count)
        # Two of one value, since quantiles are defined from two on.
        points = self.values if count > 1 else self.values * 2
        first, second, third = statistics.quantiles(points, n=4, method="inclusive")
        return Stats(count, rows - count, mean, std, min(points), first, second, third, max(points))


@dataclass
class Tally:
    """The whole run. metrics: ``{reward: {sub_metric: Metric}}``; memory: eight bytes per value."""

    rows: int
    metrics: dict[str, dict[str, Metric]]
    failed_rows: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    messages: dict[str, Counter[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry], rewards: Iterable[str], rows: int) -> Tally:
        """Tally *entries* of a run over *rows* rows."""
        tally = cls(rows, {reward: {} for reward in rewards})
        for entry in entries:
            tally._add(entry)
        return tally

    def columns(self) -> dict[str, str]:
        """The columns that the run adds, with their kind as in `rows.kind_of`."""
        columns: dict[str, str] = {}
        for reward, metrics in self.metrics.items():
            columns |= {f"{reward}.{name}": "float" for name in metrics}
            columns[f"{reward}.error"] = "text"
        return columns

    def _add(self, entry: Entry) -> None:
        self.failed_rows += bool(entry.errors)
        for reward, metrics in self.metrics.items():
            for name, value in entry.scores.get(reward, {}).items():
                metric = metrics.setdefault(name, Metric())
                if value is not None:
                    metric.add(value, entry.index)
            if reward in entry.errors:
                self._add_failure(reward, entry.errors[reward])

    def _add_failure(self, reward: str, message: str) -> None:
        self.failures[reward] += 1
        messages = self.messages.setdefault(reward, Counter())
        if message in messages or len(messages) < _MAX_MESSAGES:
            messages[message] += 1


def _keep(heap: list[tuple[float, int]], entry: tuple[float, int]) -> None:
    if len(heap) < SHOWN_EXTREMES:
        heapq.heappush(heap, entry)
    else:
        heapq.heappushpop(heap, entry)
