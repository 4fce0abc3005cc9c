"""The picture of a run: wall time over the limit and CPU per call, per scenario and client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

# Told apart by the colour-blind and in grey.
_COLOURS = {"qreward": "#0b4f8a", "0.1.7": "#e69f00", "openai": "#7fb2dd", "aiohttp": "#bbbbbb"}
_CUT = 5.0  # bars end here; their label says how long they are


def draw(summary: dict[str, Any], path: Path) -> None:
    """Write the picture of *summary* to *path*."""
    scenarios = summary["scenarios"]
    figure = Figure(figsize=(9.0, 1.0 + 0.24 * sum(len(s["clients"]) + 1 for s in scenarios.values())))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    place, ticks = 0.0, []
    for name, scenario in scenarios.items():
        left.text(0.0, place, f"{name}: {scenario['title']}", fontsize=8, weight="bold", va="center")
        ticks.append((place, ""))
        place += 1.0
        for label, row in scenario["clients"].items():
            ticks.append((place, label))
            colour = _COLOURS.get(label.split("-")[0].split(" ")[0], "#bbbbbb")
            _bar(left, place, row.get("over_limit"), colour, _lost(row))
            right.barh(place, row.get("cpu_us", 0.0), color=colour, height=0.8)
            place += 1.0
    left.axvline(1.0, color="black", linewidth=0.8)
    left.set_xlim(0, _CUT * 1.12)
    left.set_ylim(place, -1.0)
    left.set_yticks([at for at, _ in ticks], [label for _, label in ticks], fontsize=7)
    left.set_xlabel("wall time, × hand-written aiohttp for the same task")
    right.set_xlabel("CPU of the client, µs per call")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    figure.suptitle(f"{summary['calls']} calls, {summary['callers']} callers, medians of {summary['reps']}", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def _bar(axes: Any, place: float, ratio: float | None, colour: str, note: str) -> None:
    if ratio is None:
        axes.text(0.05, place, f"no result{note}", fontsize=7, va="center")
        return
    axes.barh(place, min(ratio, _CUT), color=colour, height=0.8)
    axes.text(min(ratio, _CUT) + 0.05, place, f"{ratio:.2f}{note}", fontsize=7, va="center")


def _lost(row: dict[str, Any]) -> str:
    lost = sum(row["errors"].values())
    return f"  ({lost} lost)" if lost else ""
