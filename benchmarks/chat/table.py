"""The tables of the chat benchmarks, for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

_WIDTH = 160
# (head, key, digits)
_COLUMNS = (
    ("wall s", "wall_s", 2), ("× limit", "over_limit", 2), ("rps", "rps", 0), ("p50 ms", "p50_ms", 0),
    ("p99 ms", "p99_ms", 0), ("CPU µs/call", "cpu_us", 0), ("requests", "requests", 0), ("429", "status_429", 0),
    ("503", "status_503", 0), ("abandoned", "abandoned", 0),
)  # fmt: skip
_WAITED = 0.15


def console() -> Console:
    """Where tables go; in a file or a pipe there is no terminal to fit."""
    found = Console()
    return found if found.is_terminal else Console(width=_WIDTH)


def show(summary: dict[str, Any]) -> None:
    """One table for all scenarios."""
    title = f"{summary['calls']} calls, {summary['callers']} callers, medians of {summary['reps']}"
    table = Table(title=title, title_justify="left", collapse_padding=True, pad_edge=False)
    table.add_column("scenario", no_wrap=True)
    for head in [head for head, _, _ in _COLUMNS]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("errors")
    for name, scenario in summary["scenarios"].items():
        table.add_section()
        table.add_row(f"[bold]{name}[/]: {scenario['title']}")
        for label, row in scenario["clients"].items():
            shown = f"  {label} (limit)" if label == scenario["limit"] else f"  {label}"
            table.add_row(shown, *(_number(row, key, digits) for _, key, digits in _COLUMNS), _errors(row))
    out = console()
    out.print(table)
    for line in _notes(summary):
        out.print(line, highlight=False)


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = [
        "× limit: wall time over that of hand-written aiohttp in the same round. requests, 429, abandoned: as the "
        "servers counted.\nA call lasts from its caller's decision to the answer, waiting included."
    ]
    slow = {
        name
        for name, scenario in summary["scenarios"].items()
        if any(row.get("waited_share", 0.0) > _WAITED for row in scenario["clients"].values())
    }
    if slow:
        notes.append(f"[yellow]Clients waited for a core in {', '.join(sorted(slow))}: trust the CPU, not the time.[/]")
    return notes


def _number(row: dict[str, Any], key: str, digits: int) -> str:
    return f"{row[key]:.{digits}f}" if key in row else "–"


def _errors(row: dict[str, Any]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in row["errors"].items()) or "–"
