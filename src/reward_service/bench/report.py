"""The results as a table for people and as JSON for programs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import orjson
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from reward_service.bench.load import Result
from reward_service.bench.stats import PERCENTILES, Level, percentiles


def level_table(measured: Sequence[Level]) -> Table:
    """One line per level; latencies in milliseconds, of successful requests."""
    table = Table(title="latency in ms", title_justify="right")
    table.add_column("rewards", overflow="fold")
    headings = ("batch", "callers", "ok", "failed", "items/s")
    for heading in (*headings, *(f"p{percent}" for percent in PERCENTILES), "max"):
        table.add_column(heading, justify="right", no_wrap=True)
    for level in measured:
        latencies = [_ms(level.latency_ms[percent]) for percent in (*PERCENTILES, 100)]
        table.add_row(
            escape(level.label),
            str(level.batch_size),
            str(level.concurrency),
            str(level.successful),
            f"[red]{level.failed}[/red]" if level.failed else "0",
            _rate(level.items_per_second),
            *latencies,
        )
    return table


def side_by_side(measured: Sequence[Level]) -> Table | None:
    """Items per second and p95 of the reward sets beside each other; None for a single set."""
    labels = list(dict.fromkeys(level.label for level in measured))
    if len(labels) < 2:
        return None
    cells = {
        (level.label, level.batch_size, level.concurrency): f"{level.mean_items_per_second:,.1f}  "
        f"({_ms(level.latency_ms[95])})"
        for level in measured
    }
    table = Table(title="items/s (p95 in ms)", title_justify="right")
    for heading in ("batch", "callers", *labels):
        table.add_column(escape(heading), justify="right")
    for batch_size, concurrency in dict.fromkeys((level.batch_size, level.concurrency) for level in measured):
        row = [cells.get((label, batch_size, concurrency), "–") for label in labels]
        table.add_row(str(batch_size), str(concurrency), *row)
    return table


def failure_lines(measured: Sequence[Level]) -> list[RenderableType]:
    """What failed, over all levels; empty when nothing did."""
    transport: Counter[str] = sum((level.transport_errors for level in measured), Counter())
    rewards: Counter[str] = sum((level.reward_failures for level in measured), Counter())
    lines = [f"[red]requests without an answer, {escape(kind)}: {n:,}[/red]" for kind, n in transport.most_common()]
    lines += [f"[red]items without a score of {escape(name)}: {n:,}[/red]" for name, n in rewards.most_common()]
    return list(lines)


def run_record(result: Result) -> dict[str, Any]:
    """One measurement as JSON, without the single values."""
    point = result.point
    latencies = percentiles([latency * 1000 for latency in result.latencies_s])
    return {
        "repetition": point.repetition,
        "rewards": list(point.rewards),
        "concurrency": point.concurrency,
        "batch_size": point.batch_size,
        "successful_requests": result.successful,
        "failed_requests": result.failed,
        "seconds": round(result.seconds, 4),
        "items_per_second": round(result.items_per_second, 3),
        "latency_ms": {_name(percent): round(value, 3) for percent, value in latencies.items()},
        "transport_errors": dict(result.transport_errors),
        "reward_failures": dict(result.reward_failures),
    }


def json_line(rewards: Sequence[str], results: Sequence[Result]) -> str:
    """Everything but the single values in one line."""
    return orjson.dumps({"rewards": list(rewards), "runs": [run_record(r) for r in results]}).decode()


def json_file(rewards: Sequence[str], results: Sequence[Result]) -> bytes:
    """The content of ``--output``: the same with every score."""
    runs = [
        {
            **run_record(result),
            "scores": {
                name: {"count": len(values), "mean": statistics.fmean(values), "values": list(values)}
                for name, values in result.scores.items()
            },
        }
        for result in results
    ]
    return orjson.dumps({"rewards": list(rewards), "runs": runs}, option=orjson.OPT_INDENT_2)


def _name(percent: int) -> str:
    return "max" if percent == 100 else f"p{percent}"


def _ms(value: float) -> str:
    return "–" if value != value else f"{value:,.1f}"


def _rate(rates: Sequence[float]) -> str:
    mean = f"{statistics.fmean(rates):,.1f}"
    return f"{mean} ± {(max(rates) - min(rates)) / 2:,.1f}" if len(rates) > 1 else mean
