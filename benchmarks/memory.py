"""Floods the service with far more than fits, and reads what the gateway's memory does about it.

    python benchmarks/memory.py [--seconds 10] [--out memory.json]

Per load: the bytes that all callers ask to hold at once (bodies and decoded images), the highest resident size of
the gateway, the most that its budgets counted, and what it holds once it is idle again. Prints a table, and one
line of JSON at the end. Ends with 1 when an answer was wrong, a peak is over --at-most, or memory stays.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import serving
from bodies import build
from cases import Case, parse_cases
from load import drive
from meter import Meter, machine
from rich.table import Table
from table import stdout

LOADS = "n1000,x64,y64,y200"
SETTLE_S = 20.0
# What may stay after a flood: caches of the allocator and of the interpreter.
KEPT_MB = 150
Record = dict[str, Any]


class Watch:
    """Reads `GET /health` twice a second for the bytes that the gateway counts as in flight."""

    def __init__(self, url: str) -> None:
        self.bodies = self.decoded = 0
        self._url = f"{url}/health"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._stop.wait(0.5):
            try:
                with urllib.request.urlopen(self._url, timeout=10.0) as response:
                    health = json.load(response)
            except OSError:
                continue
            self.bodies = max(self.bodies, health.get("body_bytes_in_flight", 0))
            self.decoded = max(self.decoded, health.get("decoded_bytes_in_flight", 0))


def flood(service: serving.Service, meter: Meter, case: Case, folder: Path, seconds: float) -> Record:
    """One load from idle to idle; sizes in MiB."""
    bodies = build(case.shape, folder)
    before = settled(meter)
    meter.reset_peak()
    with Watch(service.url) as watch:
        load = drive(service.url, case, bodies, seconds)
    peak = meter.memory().peak
    shape = case.shape
    asked = case.callers * (len(bodies[0].json) + shape.items * shape.size**2 * 3)
    return {
        "title": shape.title, "callers": case.callers, "asked_mb": round(asked / 2**20), "before_mb": before,
        "peak_mb": peak, "bodies_mb": round(watch.bodies / 2**20), "decoded_mb": round(watch.decoded / 2**20),
        "after_mb": settled(meter), "item_s": load.item_s, "p99_ms": load.p99_ms, "bad": load.bad,
    }  # fmt: skip


def settled(meter: Meter) -> float:
    """The resident size once it has stopped falling, after at most `SETTLE_S`."""
    until, last = time.monotonic() + SETTLE_S, meter.memory().resident
    while time.monotonic() < until:
        time.sleep(3.0)
        now = meter.memory().resident
        if now >= last - 1.0:
            return now
        last = now
    return last


def show(record: Record) -> None:
    """Print the table to stdout."""
    table = Table(title="Gateway memory, MiB", title_justify="left")
    heads = (
        "load", "callers", "asked for", "peak", "bodies", "decoded", "idle before", "idle after", "items/s", "wrong",
    )  # fmt: skip
    for head in heads:
        table.add_column(head, justify="left" if head == "load" else "right")
    for row in record["memory"].values():
        sizes = ("asked_mb", "peak_mb", "bodies_mb", "decoded_mb", "before_mb", "after_mb", "item_s")
        wrong = ", ".join(f"{count} {kind}" for kind, count in row["bad"].items()) or "0"
        table.add_row(row["title"], str(row["callers"]), *(f"{row[key]:.0f}" for key in sizes), wrong)
    stdout().print(table)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--cases", default=LOADS, help=f"as for run.py (default {LOADS})")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--at-most", type=float, default=1024.0, metavar="MIB", help="for a peak (default 1024)")
    parser.add_argument("--out", type=Path)
    serving.add_arguments(parser)
    args = parser.parse_args()
    rows: dict[str, Record] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="reward-bench-") as name, serving.chosen(args, Path(name)) as service:
            if service.meter is None:
                raise serving.NoService("the gateway's process is not on this machine; give --pid, or no --url")
            for case in parse_cases(args.cases):
                rows[case.name] = flood(service, service.meter, case, Path(name), args.seconds)
                print(f"{case.name:<6} peak {rows[case.name]['peak_mb']:.0f} MB", file=sys.stderr)
    except (serving.NoService, ValueError, ImportError) as error:
        print(f"memory.py: {error}", file=sys.stderr)
        return 2
    record = {"machine": machine(), "seconds": args.seconds, "memory": rows}
    if args.out is not None:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    show(record)
    print(json.dumps(record, ensure_ascii=False))
    idle = next(iter(rows.values()))["before_mb"]
    failed = [n for n, r in rows.items() if r["bad"] or r["peak_mb"] > args.at_most or r["after_mb"] > idle + KEPT_MB]
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
