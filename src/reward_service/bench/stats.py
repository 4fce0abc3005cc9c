"""Percentiles, and the repetitions of a measurement as one level."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reward_service.bench.load import Result

PERCENTILES = (50, 90, 95, 99)


def percentiles(values: Sequence[float]) -> dict[int, float]:
    """`PERCENTILES` and 100 of *values* by linear interpolation; NaN without values."""
    if not values:
        return dict.fromkeys((*PERCENTILES, 100), math.nan)
    # Two of one value, since quantiles are defined from two on.
    points = statistics.quantiles(values if len(values) > 1 else [*values, *values], n=100, method="inclusive")
    return {percent: points[percent - 1] for percent in PERCENTILES} | {100: max(values)}


@dataclass(frozen=True)
class Level:
    """All repetitions of one measurement. items_per_second: one entry each. latency_ms: over all requests."""

    rewards: tuple[str, ...]
    concurrency: int
    batch_size: int
    successful: int
    failed: int
    items_per_second: tuple[float, ...]
    latency_ms: dict[int, float]
    transport_errors: Counter[str]
    reward_failures: Counter[str]

    @property
    def mean_items_per_second(self) -> float:
        """Over the repetitions."""
        return statistics.fmean(self.items_per_second)

    @property
    def label(self) -> str:
        """The rewards as people write them."""
        return " + ".join(self.rewards)


def levels(results: Iterable[Result]) -> list[Level]:
    """*results* with their repetitions put together, in the order of the first ones."""
    groups: dict[tuple[tuple[str, ...], int, int], list[Result]] = {}
    for result in results:
        point = result.point
        groups.setdefault((point.rewards, point.batch_size, point.concurrency), []).append(result)
    return [_level(group) for group in groups.values()]


def _level(group: Sequence[Result]) -> Level:
    point = group[0].point
    latencies = [latency * 1000 for result in group for latency in result.latencies_s]
    return Level(
        point.rewards,
        point.concurrency,
        point.batch_size,
        sum(result.successful for result in group),
        sum(result.failed for result in group),
        tuple(result.items_per_second for result in group),
        percentiles(latencies),
        sum((result.transport_errors for result in group), Counter()),
        sum((result.reward_failures for result in group), Counter()),
    )
