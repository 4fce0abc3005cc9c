"""From a record of `run.py` to medians and ratios."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from cases import CPU_AT_MOST, Case, parse_cases

Record = dict[str, Any]
MEASURED = (
    "item_s", "p50_ms", "p99_ms", "client_cpu_ms", "gateway_cpu_ms", "replicas_cpu_ms", "ray_cpu_ms",
    "gateway_peak_mb", "gateway_pss_mb", "other_cores",
)  # fmt: skip
CODECS = ("pil", "simplejpeg")
# Fewer points make no line.
SWEEP_POINTS = 5


def summarise(record: Record) -> Record:
    """Per case: medians of every column, and ratios to the direct loop, each pair taken in one round."""
    cases = {name: _case(parse_cases(name)[0], sides) for name, sides in record["cases"].items()}
    return {**{key: record[key] for key in ("machine", "seconds", "reps")}, "cases": cases}


def _case(case: Case, sides: dict[str, list[Record]]) -> Record:
    runs = sides["service"]
    bad: Counter[str] = Counter()
    for run in runs:
        bad.update(run["bad"])
    row: Record = {
        "title": case.shape.title,
        "callers": case.callers,
        "goal": str(case.goal or "–"),
        "bad": dict(bad),
    }
    for key in MEASURED:
        values = [run[key] for run in runs if key in run]
        if values:
            row[key] = round(statistics.median(values), 3)
    if len(sides["direct"]) == len(runs):
        row["direct"] = {codec: _against(codec, sides["direct"], runs, case) for codec in CODECS}
    row["met"] = _met(case, row)
    return row


def _against(codec: str, direct: list[Record], runs: list[Record], case: Case) -> Record:
    """Throughput over the direct loop's at the goal's threads; CPU over the direct loop's with one thread."""
    threads = str((case.goal and case.goal.threads) or 2)
    found: Record = {
        "items_s_1": round(statistics.median(one[codec]["1"]["item_s"] for one in direct), 1),
        "items_s_2": round(statistics.median(one[codec]["2"]["item_s"] for one in direct), 1),
        **_apart(codec, direct),
        "cpu_ms": round(statistics.median(one[codec]["1"]["cpu_ms"] for one in direct), 3),
        "throughput": round(
            statistics.median(
                run["item_s"] / one[codec][threads]["item_s"] for one, run in zip(direct, runs, strict=True)
            ),
            3,
        ),
    }
    if all("gateway_cpu_ms" in run for run in runs):
        found["cpu"] = round(
            statistics.median(
                (run["gateway_cpu_ms"] + run["replicas_cpu_ms"]) / one[codec]["1"]["cpu_ms"]
                for one, run in zip(direct, runs, strict=True)
            ),
            3,
        )
    return found


def _apart(codec: str, direct: list[Record]) -> Record:
    if any("apart" not in one[codec] for one in direct):
        return {}
    return {"items_s_apart": round(statistics.median(one[codec]["apart"]["item_s"] for one in direct), 1)}


def _met(case: Case, row: Record) -> dict[str, bool]:
    """Which goals are met: throughput per codec of the yardstick, or in items per second; CPU per codec."""
    met: dict[str, bool] = {}
    goal = case.goal
    if goal is not None and goal.threads is None:
        met["items_s"] = row["item_s"] >= goal.least
    for codec, against in row.get("direct", {}).items():
        if goal is not None and goal.threads is not None:
            met[codec] = against["throughput"] >= goal.least
        if "cpu" in against:
            met[f"{codec}_cpu"] = against["cpu"] <= CPU_AT_MOST
    return met


def machine_line(summary: Record) -> str:
    """One line on where and how a record came about."""
    where = summary["machine"]
    machine = f"{where['cores']} × {where['cpu']}, {where['memory_gb']} GB, Python {where['python']}"
    return f"{machine}, {where['date']}; medians of {summary['reps']} × {summary['seconds']:g} s"


def sweeps(summary: Record) -> dict[str, dict[int, Record]]:
    """Shapes that were measured at `SWEEP_POINTS` numbers of callers or more: letter, then callers, then case."""
    found: dict[str, dict[int, Record]] = {}
    for name, row in summary["cases"].items():
        found.setdefault(name[0], {})[row["callers"]] = row
    return {letter: dict(sorted(line.items())) for letter, line in found.items() if len(line) >= SWEEP_POINTS}
