"""Pictures of the records of `run.py`.

    python benchmarks/plot.py results.json sweep.json

Writes performance.png (every case against the direct loop) from the first record, and performance-sweep.png
(items per second over callers) from the records that have a shape with several numbers of callers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cases import SHAPES, parse_cases
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from summary import machine_line, summarise, sweeps

FOLDER = Path(__file__).parent.parent / "docs" / "img"
LABELS = {"pil": "direct loop with Pillow", "simplejpeg": "direct loop with simplejpeg"}
# Told apart by the colour-blind and in grey.
COLOURS = {"service": "#0b4f8a", "pil": "#e69f00", "simplejpeg": "#7fb2dd"}
STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True}
DPI = 150


def ratios(summary: dict[str, Any]) -> Figure:
    """Bars: throughput over the direct loop's, with the goals, of the cases that have such a goal."""
    goals = {name: parse_cases(name)[0].goal for name in summary["cases"]}
    shown = {name: goal.least for name, goal in goals.items() if goal is not None and goal.threads is not None}
    cases = {name: case for name, case in summary["cases"].items() if name in shown and "direct" in case}
    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    axes = figure.subplots()
    for shift, codec in ((-0.2, "pil"), (0.2, "simplejpeg")):
        heights = [case["direct"][codec]["throughput"] for case in cases.values()]
        places = [place + shift for place in range(len(cases))]
        bars = axes.bar(places, heights, 0.38, color=COLOURS[codec], label=f"over the {LABELS[codec]}")
        axes.bar_label(bars, fmt="%.2f", fontsize=7, label_type="center")
    for place, name in enumerate(cases):
        # A name with an underscore stays out of the legend: one entry is enough.
        label = "goal" if place == 0 else "_goal"
        axes.hlines(shown[name], place - 0.42, place + 0.42, color="black", linewidth=1.6, label=label)
    axes.axhline(1.0, color="grey", linewidth=0.8, linestyle=":")
    titles = [f"{name}\n{case['title'].replace(', ', chr(10))}" for name, case in cases.items()]
    axes.set_xticks(range(len(cases)), titles, fontsize=7.5)
    axes.set_ylabel("throughput, × direct loop")
    axes.legend(frameon=False, fontsize=8, loc="upper left", ncols=3)
    axes.margins(y=0.2)
    figure.suptitle(machine_line(summary), fontsize=8, color="grey")
    return figure


def sweep(summaries: Sequence[dict[str, Any]]) -> Figure:
    """One panel per shape: items per second over callers, and the direct loop's as lines."""
    lines = {letter: line for summary in summaries for letter, line in sweeps(summary).items()}
    figure = Figure(figsize=(2.6 * max(2, len(lines)), 3.2), layout="constrained")
    panels = figure.subplots(1, len(lines), squeeze=False)[0]
    for panel, (letter, line) in zip(panels, lines.items(), strict=True):
        _panel(panel, letter, line)
    panels[0].set_ylabel("items per second")
    panels[0].legend(frameon=False, fontsize=7.5, loc="lower right")
    figure.suptitle(machine_line(summaries[0]), fontsize=8, color="grey")
    return figure


def _panel(axes: Axes, letter: str, line: dict[int, dict[str, Any]]) -> None:
    axes.plot(list(line), [case["item_s"] for case in line.values()], "o-", color=COLOURS["service"], label="service")
    for codec in ("simplejpeg", "pil"):
        direct = sorted(case["direct"][codec]["items_s_2"] for case in line.values() if "direct" in case)
        if direct:
            axes.axhline(direct[len(direct) // 2], color=COLOURS[codec], linestyle="--", label=LABELS[codec])
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(line), [str(callers) for callers in line], fontsize=7.5)
    axes.minorticks_off()
    axes.set_ylim(0, 1.12 * axes.get_ylim()[1])
    axes.set_xlabel("callers")
    axes.set_title(SHAPES[letter].title, fontsize=9)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="files that run.py --out wrote")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    mpl.rcParams.update(STYLE)
    args.folder.mkdir(parents=True, exist_ok=True)
    summaries = [summarise(json.loads(path.read_text(encoding="utf-8"))) for path in args.records]
    pictures = {"performance.png": ratios(summaries[0])}
    swept = [summary for summary in summaries if sweeps(summary)]
    if swept:
        pictures["performance-sweep.png"] = sweep(swept)
    for name, figure in pictures.items():
        figure.savefig(args.folder / name, dpi=DPI)
        print(args.folder / name)


if __name__ == "__main__":
    main()
