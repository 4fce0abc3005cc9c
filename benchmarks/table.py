"""The table of `run.py` for people."""

from __future__ import annotations

from typing import Any

from cases import CPU_AT_MOST
from rich.console import Console
from rich.table import Table
from summary import machine_line

HEADS = (
    "case", "items × rewards", "items/s", "p50 ms", "p99 ms", "× PIL", "× fast", "goal",
    "gateway", "replicas", "Ray", "× PIL", "× fast", "client", "peak MiB", "wrong",
)  # fmt: skip
WIDTH = 150
BUSY_CORES = 0.25


def stdout() -> Console:
    """Where tables go; in a file or a pipe there is no terminal to fit."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def show(summary: dict[str, Any]) -> None:
    """Print the table to stdout."""
    table = Table(title=machine_line(summary), title_justify="left", collapse_padding=True, pad_edge=False)
    for number, head in enumerate(HEADS):
        table.add_column(head, justify="left" if number < 2 else "right", no_wrap=True)
    for name, case in summary["cases"].items():
        table.add_row(*_row(name, case))
    console = stdout()
    console.print(table)
    for line in _notes(summary):
        console.print(line, highlight=False)


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = [
        "× = over the direct loop, by its codec: throughput with two threads (n1: one), then CPU of gateway",
        f"and replicas over the direct loop's (goal: at most {CPU_AT_MOST:g}×). gateway, replicas, Ray (its "
        "daemons), client (the load generator): CPU ms per item.",
    ]
    busy = [name for name, case in summary["cases"].items() if case.get("other_cores", 0.0) > BUSY_CORES]
    if busy:
        notes.append(
            f"[yellow]Something else kept over {BUSY_CORES:g} cores busy during {', '.join(busy)}: "
            "measure again on a quiet machine.[/]"
        )
    return notes


def _row(name: str, case: dict[str, Any]) -> list[str]:
    met = case["met"]
    return [
        name, case["title"], _mark(f"{case['item_s']:.0f}", met.get("items_s")),
        f"{case['p50_ms']:.1f}", f"{case['p99_ms']:.1f}",
        *(_mark(_ratio(case, codec, "throughput"), met.get(codec)) for codec in ("pil", "simplejpeg")),
        case["goal"],
        *(_number(case, f"{part}_cpu_ms", 2) for part in ("gateway", "replicas", "ray")),
        *(_mark(_ratio(case, codec, "cpu"), met.get(f"{codec}_cpu")) for codec in ("pil", "simplejpeg")),
        _number(case, "client_cpu_ms", 2), _number(case, "gateway_peak_mb", 0),
        ", ".join(f"{count} {kind}" for kind, count in case["bad"].items()) or "0",
    ]  # fmt: skip


def _ratio(case: dict[str, Any], codec: str, key: str) -> str:
    value = case.get("direct", {}).get(codec, {}).get(key)
    return "-" if value is None else f"{value:.2f}"


def _mark(text: str, met: bool | None) -> str:
    if met is None:
        return text
    return f"[green]{text} ✓[/]" if met else f"[red]{text} ✗[/]"


def _number(case: dict[str, Any], key: str, digits: int) -> str:
    return f"{case[key]:.{digits}f}" if key in case else "-"
