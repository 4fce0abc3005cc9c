"""What `schedule` adds to a call: µs per async call, nothing waiting, feature by feature.

    python benchmarks/chat/overhead.py
    python benchmarks/chat/overhead.py --python-017 path/to/python     # beside QReward 0.1.7

Ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

ROUNDS, CALLS = 7, 3000

FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "retry_times": {"retry_times": 3},
    "timeout": {"timeout": 60},
    "limit_size": {"limit_size": 10**9},
    "key_func": {"key_func": lambda: 1},
    "circuit_breaker": {"circuit_breaker_threshold": 5},
    "hedged_request_time": {"hedged_request_time": 5},
    "adaptive_limit": {"limit_size": 10**6, "adaptive_limit": True, "adaptive_limit_max": 10**6},
    "metrics_callback": {"metrics_callback": lambda metrics: None},
}
FEATURES["all of these"] = {k: v for settings in FEATURES.values() for k, v in settings.items()}


async def measure(call: Callable[[], Awaitable[Any]]) -> float:
    """The best round, in µs per call."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(CALLS):
            await call()
        best = min(best, (time.perf_counter() - began) / CALLS)
    return 1e6 * best


async def everything() -> dict[str, float]:
    """The bare coroutine, then every feature on top of it."""
    from qreward.utils import schedule

    def body(name: str) -> Callable[[], Awaitable[int]]:
        async def bare() -> int:
            return 1

        bare.__qualname__ = name  # a key of its own: features must not be inherited from the row before
        return bare

    floor = await measure(body("bare"))
    found = {"bare coroutine": floor}
    for name, settings in FEATURES.items():
        found[name] = await measure(schedule(**settings)(body(name))) - floor
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python-017", metavar="PYTHON", help="an interpreter that has QReward 0.1.7")
    parser.add_argument("--bare-json", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    ours = asyncio.run(everything())
    if args.bare_json:
        print(json.dumps(ours))
        return 0
    theirs: dict[str, float] = {}
    if args.python_017:
        done = subprocess.run(
            [args.python_017, __file__, "--bare-json"], capture_output=True, text=True, check=True, timeout=600
        )
        theirs = json.loads(done.stdout.splitlines()[-1])
    show(ours, theirs)
    print(json.dumps({"ours_us": ours, "previous_us": theirs}))
    return 0


def show(ours: dict[str, float], theirs: dict[str, float]) -> None:
    """A table for people."""
    from rich.console import Console
    from rich.table import Table

    table = Table("feature", title="µs per call on top of the bare coroutine, best of rounds")
    table.add_column("qreward", justify="right")
    if theirs:
        table.add_column("0.1.7", justify="right")
    for name, value in ours.items():
        table.add_row(name, f"{value:.1f}", *([f"{theirs[name]:.1f}"] if theirs else []))
    Console(width=80).print(table)


if __name__ == "__main__":
    sys.exit(main())
