"""Writes the tables of docs/performance.md from records, so that no figure is typed by hand.

    python benchmarks/render.py results.json sweep.json memory.json

The first record of `run.py` becomes the table of cases; shapes with several numbers of callers become the sweep;
a record of `memory.py` becomes the table of memory. What stands between the two markers in the page is replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from cases import CPU_AT_MOST, MANY
from summary import CODECS, machine_line, summarise, sweeps

PAGE = Path(__file__).parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
Record = dict[str, Any]


def cases_table(summary: Record) -> str:
    """Throughput of every case, and its ratio to the direct loop."""
    heads = (
        "case", "items × rewards", "callers", "items/s", "p50 ms", "p99 ms", "direct, PIL", "direct, simplejpeg",
        "× PIL", "× simplejpeg", "goal",
    )  # fmt: skip
    return _table(heads, (_case_row(name, case) for name, case in summary["cases"].items()))


def _case_row(name: str, case: Record) -> list[str]:
    direct, met = case.get("direct", {}), case["met"]
    return [
        f"`{name}`", case["title"], str(case["callers"]), _judged(f"{case['item_s']:.0f}", met.get("items_s")),
        f"{case['p50_ms']:.1f}", f"{case['p99_ms']:.1f}",
        *(_rates(direct.get(codec)) for codec in CODECS),
        *(_ratio(direct.get(codec), "throughput", met.get(codec)) for codec in CODECS),
        case["goal"],
    ]  # fmt: skip


def cpu_table(summary: Record) -> str:
    """CPU of every case, and what of the machine it kept busy."""
    heads = (
        "case", "gateway", "replicas", "Ray's daemons", "load generator", "direct, PIL", "direct, simplejpeg",
        "× PIL", "× simplejpeg", "cores busy", "by others",
    )  # fmt: skip
    rows = [_cpu_row(name, case) for name, case in summary["cases"].items() if "gateway_cpu_ms" in case]
    if not rows:
        return ""
    return f"CPU milliseconds per item (goal: at most {CPU_AT_MOST:g}×):\n\n" + _table(heads, rows)


def _cpu_row(name: str, case: Record) -> list[str]:
    direct, met = case.get("direct", {}), case["met"]
    parts = [case[f"{part}_cpu_ms"] for part in ("gateway", "replicas", "ray", "client")]
    return [
        f"`{name}`", *(f"{part:.2f}" for part in parts),
        *(f"{direct[codec]['cpu_ms']:.2f}" if codec in direct else "–" for codec in CODECS),
        *(_ratio(direct.get(codec), "cpu", met.get(f"{codec}_cpu")) for codec in CODECS),
        f"{sum(parts) * case['item_s'] / 1e3:.1f}", f"{case['other_cores']:.1f}",
    ]  # fmt: skip


def sweep_table(summaries: Sequence[Record]) -> str:
    """Items per second over callers, and the lowest from 16 callers on over the highest of all."""
    lines = {letter: line for summary in summaries for letter, line in sweeps(summary).items()}
    if not lines:
        return ""
    callers = sorted({count for line in lines.values() for count in line})
    rows = []
    for line in lines.values():
        rates = {count: case["item_s"] for count, case in line.items()}
        held = min(rate for count, rate in rates.items() if count >= MANY) / max(rates.values())
        shown = [f"{rates[count]:.0f}" if count in rates else "–" for count in callers]
        rows.append([next(iter(line.values()))["title"], *shown, f"{held:.0%}"])
    heads = ("items × rewards", *map(str, callers), f"lowest from {MANY} on, of the best")
    swept = next(summary for summary in summaries if sweeps(summary))
    times = f"{swept['reps']} × {swept['seconds']:g} s"
    return f"Items per second over callers, medians of {times}:\n\n" + _table(heads, rows)


def memory_table(record: Record) -> str:
    """The gateway's memory under floods."""
    heads = (
        "load", "callers", "asked for at once", "peak", "of it bodies", "of it decoded", "idle before", "idle after",
    )  # fmt: skip
    sizes = ("asked_mb", "peak_mb", "bodies_mb", "decoded_mb", "before_mb", "after_mb")
    rows = [
        [row["title"], str(row["callers"]), *(f"{row[key]:,.0f}" for key in sizes)] for row in record["memory"].values()
    ]
    return "Resident memory of the gateway under floods, MiB:\n\n" + _table(heads, rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    rule = ["---" if number == 0 else "---:" for number in range(len(heads))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (heads, rule, *rows))


def _rates(direct: Record | None) -> str:
    if direct is None:
        return "–"
    apart = f" ({direct['items_s_apart']:.0f})" if "items_s_apart" in direct else ""
    return f"{direct['items_s_1']:.0f}, {direct['items_s_2']:.0f}{apart}"


def _ratio(direct: Record | None, key: str, met: bool | None) -> str:
    return "–" if direct is None or key not in direct else _judged(f"{direct[key]:.2f}", met)


def _judged(text: str, met: bool | None) -> str:
    return text if met is None else f"{text} ✓" if met else f"{text} ✗"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", type=Path, help="files that run.py and memory.py wrote")
    parser.add_argument("--page", type=Path, default=PAGE)
    args = parser.parse_args()
    records = [json.loads(path.read_text(encoding="utf-8")) for path in args.records]
    summaries = [summarise(record) for record in records if "cases" in record]
    parts = [memory_table(record) for record in records if "memory" in record]
    if summaries:
        first = summaries[0]
        figures = [f"{machine_line(first)}.", cases_table(first), cpu_table(first)]
        parts = [*figures, sweep_table(summaries), *parts]
    text = args.page.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        print(f"render.py: {args.page} has no {BEGIN} … {END}; add both lines", file=sys.stderr)
        return 2
    middle = "\n\n".join(part for part in parts if part)
    args.page.write_text(f"{before}{BEGIN}\n\n{middle}\n\n{END}{after}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
