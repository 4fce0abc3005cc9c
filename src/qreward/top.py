"""`python -m qreward.top PATH`: a live view of a pool that runs `serve_snapshot(PATH)`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

_STALE_S = 5.0
_COLOURS = {"healthy": "green", "probing": "yellow", "paused": "yellow", "ejected": "red"}


def view(snapshot: dict[str, Any], now: float) -> Table:
    """The table of one snapshot."""
    waiting = snapshot["waiting"]
    queue = ", ".join(f"{count} at priority {priority}" for priority, count in waiting.items()) or "nobody waits"
    age = now - snapshot["time"]
    title = f"compute pool: {queue}" + (f" (not updated for {age:.0f} s)" if age > _STALE_S else "")
    table = Table(title=title)
    for name in ("source", "kind", "state"):
        table.add_column(name)
    for name in ("running", "done", "failed", "mean ms", "p95 ms", "requests left", "tokens left", "spend"):
        table.add_column(name, justify="right")
    for source in snapshot["sources"]:
        back = f" {source['returns_in_s']:.0f} s" if source["returns_in_s"] >= 1 else ""
        table.add_row(
            source["name"],
            source["kind"],
            Text(source["state"] + back, style=_COLOURS.get(source["state"], "")),
            f"{source['inflight']}/{source['max_concurrent']}",
            f"{source['done']:,}",
            f"{source['failures']:,}",
            _number(source["mean_s"], 1000),
            _number(source["p95_s"], 1000),
            _number(source["requests_left"]),
            _number(source["tokens_left"]),
            f"{source['spend']:.4f}" if source["price"] or source["price_per_call"] else "",
        )
    return table


def _number(value: float | None, factor: float = 1.0) -> str:
    return "" if value is None else f"{value * factor:,.0f}"


def read(path: Path) -> dict[str, Any]:
    """The snapshot in *path*; SystemExit with a message when there is none."""
    try:
        snapshot: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SystemExit(f"{path} is not there; call pool.serve_snapshot({str(path)!r}) in the program") from None
    except (OSError, ValueError) as exc:
        raise SystemExit(f"{path} holds no snapshot: {exc}") from None
    if not isinstance(snapshot, dict) or not snapshot.keys() >= {"time", "waiting", "sources"}:
        raise SystemExit(f"{path} holds no snapshot of a pool; give the path that serve_snapshot writes to")
    return snapshot


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m qreward.top", description=__doc__)
    parser.add_argument("path", type=Path, help="the file that pool.serve_snapshot writes")
    parser.add_argument("--once", action="store_true", help="print once and stop")
    parser.add_argument("--every", type=float, default=0.5, help="seconds between updates")
    options = parser.parse_args(arguments)
    console = Console()
    if options.once:
        console.print(view(read(options.path), time.time()))
        return 0
    try:
        with Live(view(read(options.path), time.time()), console=console, refresh_per_second=4) as live:
            while True:
                time.sleep(options.every)
                live.update(view(read(options.path), time.time()))
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
