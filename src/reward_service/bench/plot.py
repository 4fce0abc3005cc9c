"""Latency against throughput as a picture. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_service.bench.stats import Level
from reward_service.errors import ConfigError

ENDINGS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Raise ConfigError when a plot cannot be written to *path*; before the measurements, not after."""
    if path.suffix.lower() not in ENDINGS:
        raise ConfigError(f"--plot {path}: the ending must be one of {', '.join(ENDINGS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"--plot {path}: plots need matplotlib; pip install 'reward-service[plot]'")


def write_plot(path: Path, measured: Sequence[Level]) -> None:
    """One colour per set of rewards (and batch size): p50 solid, p95 dashed, the callers at each point."""
    from matplotlib.figure import Figure

    lines: dict[tuple[str, int], list[Level]] = {}
    for level in measured:
        if level.successful:
            lines.setdefault((level.label, level.batch_size), []).append(level)
    many_sizes = len({level.batch_size for level in measured}) > 1
    figure = Figure(figsize=(8, 5), dpi=130, layout="constrained")
    axes = figure.subplots()
    for number, ((label, batch_size), series) in enumerate(lines.items()):
        name = f"{label}, batches of {batch_size}" if many_sizes else label
        _draw(axes, series, name, f"C{number % 10}")
    axes.set_xlabel("items per second")
    axes.set_ylabel("latency in ms")
    axes.set_title("Latency against throughput (numbers: concurrent callers)", fontsize=11)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if lines:
        axes.legend(fontsize=8)
    figure.savefig(path)


def _draw(axes: Any, series: list[Level], name: str, colour: str) -> None:
    series = sorted(series, key=lambda level: level.concurrency)
    rates = [level.mean_items_per_second for level in series]
    for percent, style in ((50, "-"), (95, "--")):
        latencies = [level.latency_ms[percent] for level in series]
        axes.plot(rates, latencies, style, color=colour, marker="o", markersize=4, label=f"{name}, p{percent}")
    for level, rate in zip(series, rates, strict=True):
        axes.annotate(
            str(level.concurrency),
            (rate, level.latency_ms[95]),
            textcoords="offset points",
            xytext=(4, 5),
            fontsize=8,
            color=colour,
        )
