"""From a record of `run.py` to medians and ratios."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from cases import Case, parse_cases

Record = dict[str, Any]
MEASURED = (
    "item_s", "p50_ms", "p99_ms", "client_cpu_ms", "gateway_cpu_ms", "replicas_cpu_ms", "ray_cpu_ms",
    "gateway_peak_mb", "gateway_pss_mb", "other_cores",
)  # fmt: skip
CODECS = ("pil", "simplejpeg")


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
        "goal": str(case.goal),
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
    threads = str(case.goal.threads or 2)
    found: Record = {
        "items_s_1": round(statistics.median(one[codec]["1"]["item_s"] for one in direct), 1),
        "items_s_2": round(statistics.median(one[codec]["2"]["item_s"] for one in direct), 1),
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


def _met(case: Case, row: Record) -> dict[str, bool]:
    """Whether the goal is met, per codec of the yardstick; one entry for goals in items per second."""
    if case.goal.threads is None:
        return {"items_s": row["item_s"] >= case.goal.least}
    return {
        codec: against["throughput"] >= case.goal.least for codec, against in row.get("direct", {}).items()
    }


def machine_line(summary: Record) -> str:
    """One line on where and how a record came about."""
    where = summary["machine"]
    return (
        f"{where['cores']} × {where['cpu']}, {where['memory_gb']} GB, Python {where['python']}, {where['date']}; "
        f"medians of {summary['reps']} × {summary['seconds']:g} s"
    )
