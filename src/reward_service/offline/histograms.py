"""Histograms of every sub-metric in one picture. Needs matplotlib (the `plot` extra)."""

from __future__ import annotations

import io
import math
from typing import Any

from reward_service.offline.tally import Metric, Tally

_COLUMNS = 3
_MAX_BINS = 60
_CELL_INCHES = (4.2, 3.0)
_DPI = 110
_BAR, _MEAN, _MEDIAN = "#4c72b0", "#c44e52", "#dd8452"


def histograms_png(tally: Tally) -> bytes:
    """A PNG with one histogram per sub-metric, mean and median marked."""
    from matplotlib.figure import Figure

    named = [(f"{r}.{m}", metric) for r, metrics in tally.metrics.items() for m, metric in metrics.items()]
    across = max(1, min(_COLUMNS, len(named)))
    down = max(1, math.ceil(len(named) / across))
    figure = Figure(figsize=(_CELL_INCHES[0] * across, _CELL_INCHES[1] * down), dpi=_DPI, layout="constrained")
    cells = list(figure.subplots(down, across, squeeze=False).flat)
    for axes in cells:
        axes.set_axis_off()
    for axes, (name, metric) in zip(cells, named, strict=False):
        axes.set_axis_on()
        _draw(axes, name, metric, tally.rows)
    if not named:
        figure.text(0.5, 0.5, "nothing was scored", ha="center")
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _draw(axes: Any, name: str, metric: Metric, rows: int) -> None:
    stats = metric.stats(rows)
    axes.set_title(f"{name}  (n = {stats.count:,})", fontsize=10)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if not stats.count:
        axes.text(0.5, 0.5, "no scores", ha="center", transform=axes.transAxes)
        return
    axes.hist(metric.values, bins=_bins(stats.count), color=_BAR, edgecolor="white", linewidth=0.4)
    axes.axvline(stats.mean, color=_MEAN, linewidth=1.4, label=f"mean {stats.mean:.4g}")
    axes.axvline(stats.median, color=_MEDIAN, linewidth=1.4, linestyle="--", label=f"median {stats.median:.4g}")
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.set_ylabel("rows", fontsize=8)
    axes.legend(fontsize=7, frameon=False)


def _bins(count: int) -> int:
    """Rice's rule, bounded."""
    return min(_MAX_BINS, math.ceil(2 * math.cbrt(count)))
