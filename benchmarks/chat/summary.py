"""From the runs of `run.py` to medians and ratios."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from scenarios import SCENARIOS

Run = dict[str, Any]
MEASURED = ("wall_s", "rps", "p50_ms", "p99_ms", "cpu_us", "waited_share")
COUNTED = {"requests": "received", "status_429": "429", "status_503": "503", "abandoned": "client_gone"}


def summarise(record: dict[str, Any]) -> dict[str, Any]:
    """Medians over the rounds per scenario and client, and the wall time over the limit's in the same round."""
    scenarios = {name: _scenario(name, runs) for name, runs in record["scenarios"].items()}
    return {**record, "scenarios": scenarios}


def _scenario(name: str, runs: dict[str, list[Run]]) -> dict[str, Any]:
    limit = runs[SCENARIOS[name].limit]
    clients = {label: _client(of_client, limit) for label, of_client in runs.items()}
    return {"title": SCENARIOS[name].title, "limit": SCENARIOS[name].limit, "clients": clients}


def _client(runs: Sequence[Run], limit: Sequence[Run]) -> dict[str, Any]:
    good = [run for run in runs if "wall_s" in run]
    errors: Counter[str] = Counter()
    for run in runs:
        errors.update(run.get("errors", {run.get("failed", "crashed"): 1}))
    row: dict[str, Any] = {"errors": dict(errors), "rounds": len(good)}
    for key in MEASURED:
        row |= _median(key, [run[key] for run in good if key in run])
    for key, counted in COUNTED.items():
        row |= _median(key, [sum(judge[counted] for judge in run["judges"]) for run in good])
    pairs = [(run, best) for run, best in zip(runs, limit, strict=True) if "wall_s" in run and "wall_s" in best]
    row |= _median("over_limit", [run["wall_s"] / best["wall_s"] for run, best in pairs])
    return row


def _median(key: str, values: Sequence[float]) -> dict[str, float]:
    return {key: round(statistics.median(values), 3)} if values else {}


def lost(summary: dict[str, Any], of: Callable[[str], bool]) -> int:
    """Calls without the right answer, and runs that did not end, of the clients that *of* picks."""
    return sum(
        sum(row["errors"].values())
        for scenario in summary["scenarios"].values()
        for label, row in scenario["clients"].items()
        if of(label)
    )
