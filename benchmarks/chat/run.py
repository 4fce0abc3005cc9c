"""Compares chat clients on servers that stall, refuse, fail, die and hang; everything runs on this machine.

    python benchmarks/chat/run.py                                 # all scenarios, about ten minutes
    python benchmarks/chat/run.py --scenario perfect --reps 5
    python benchmarks/chat/run.py --build-017 --plot docs/img/chat.png
    python benchmarks/chat/run.py --scenario stalls --client proxy hedged-p95

Every client of every round has fresh servers and a process of its own, and each round has the opposite order. Prints a
table, and one line of JSON at the end. Ends with 1 when a call of qreward ended without the right answer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import previous
from clients import CLIENTS
from judges import Judge, running
from scenarios import SCENARIOS, Scenario
from summary import lost, summarise
from table import show

_CHILD = Path(__file__).with_name("child.py")
_BY_OTHERS = ("aiohttp", "openai")


@dataclass(frozen=True)
class Entrant:
    """A client in an interpreter."""

    client: str
    python: str
    old: bool = False

    @property
    def label(self) -> str:
        """As the table shows it."""
        if self.client.startswith(_BY_OTHERS):
            return self.client
        return f"0.1.7 {self.client}" if self.old else f"qreward {self.client}"


def main() -> int:
    """Command line."""
    args = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # the judges are stopped on the way out
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with previous.interpreter(args) as old:
        for rep in range(args.reps):
            for name in args.scenario:
                entrants = list(_entrants(SCENARIOS[name], args.client, old))
                runs = found.setdefault(name, {entrant.label: [] for entrant in entrants})
                for entrant in entrants if rep % 2 == 0 else reversed(entrants):
                    of_entrant = runs[entrant.label]
                    # What did not end once is not waited for again.
                    again = not of_entrant or "failed" not in of_entrant[-1]
                    one = _one(SCENARIOS[name], entrant, args, rep) if again else of_entrant[-1]
                    of_entrant.append(one)
                    print(f"{rep + 1}/{args.reps} {name:<10} {entrant.label:<18} {_brief(one)}", file=sys.stderr)
    record = {
        "machine": {"cores": os.cpu_count(), "python": platform.python_version()},
        **{"calls": args.n, "callers": args.concurrency, "reps": args.reps},
        "scenarios": found,
    }
    summary = summarise(record)
    show(summary)
    if args.plot is not None:
        from picture import draw

        draw(summary, args.plot)
    print(json.dumps(summary, ensure_ascii=False))
    return 1 if lost(summary, lambda label: label.startswith("qreward")) else 0


def _entrants(scenario: Scenario, chosen: Sequence[str], old: str | None) -> Iterator[Entrant]:
    """The limit first, for the ratios; then those of *chosen*, or of the scenario."""
    yield Entrant(scenario.limit, sys.executable)
    names = [name for name in chosen or scenario.clients if name != scenario.limit]
    yield from (Entrant(name, sys.executable) for name in names)
    if old is not None:
        yield from (Entrant(name, old, old=True) for name in scenario.old if not chosen or name in chosen)


def _one(scenario: Scenario, entrant: Entrant, args: argparse.Namespace, rep: int) -> dict[str, Any]:
    """What the child measured, and what the judges counted."""
    callers = scenario.callers * args.concurrency
    order = {"client": entrant.client, "calls": args.n, "callers": callers, "options": scenario.options}
    with running(scenario.judges, scenario.faults, seed=100 + 10 * rep) as judges:
        order |= {"urls": [judge.url for judge in judges], "at_most_s": args.at_most_s}
        child = subprocess.Popen(
            [entrant.python, "-W", "ignore", str(_CHILD), json.dumps(order)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=previous.environment(),
        )  # fmt: skip
        try:
            _strike(scenario, child, judges[-1], args.n // (4 * len(judges)))
            out, complaints = child.communicate(timeout=args.at_most_s + 60)
        finally:
            child.kill()
        counts = [judge.counts() for judge in judges]
    with suppress(IndexError, json.JSONDecodeError):
        return {**json.loads(out.splitlines()[-1]), "judges": counts}
    return {"failed": (complaints.strip().splitlines() or ["crashed"])[-1][:200]}


def _strike(scenario: Scenario, child: subprocess.Popen[str], victim: Judge, after: int) -> None:
    """Let the scenario's event happen when the victim has seen *after* requests."""
    while scenario.event is not None and child.poll() is None:
        if victim.counts()["received"] >= after:
            victim.kill() if scenario.event == "kill" else victim.hang()
            return
        time.sleep(0.02)


def _brief(one: dict[str, Any]) -> str:
    if "failed" in one:
        return f"failed: {one['failed']}"
    return f"{one['wall_s']:7.2f} s  {one['cpu_us']:6.0f} µs  {one['errors'] or ''}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--scenario", nargs="+", choices=list(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument("--client", nargs="+", choices=list(CLIENTS), default=[], help="besides the limit")
    parser.add_argument("--n", type=int, default=2048, help="calls (default 2048)")
    parser.add_argument("--concurrency", type=int, default=64, help="callers (default 64)")
    parser.add_argument("--reps", type=int, default=3, help="rounds (default 3)")
    parser.add_argument("--at-most-s", type=float, default=180.0, help="seconds for one run (default 180)")
    parser.add_argument("--plot", type=Path, help="draw a picture into this file")
    previous.add_arguments(parser)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
