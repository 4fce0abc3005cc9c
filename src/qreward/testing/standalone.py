"""`python -m qreward.testing.judge`: a FakeJudge in its own process."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import fields

from qreward.testing.faults import Faults
from qreward.testing.judge import FakeJudge


def parser() -> argparse.ArgumentParser:
    """One option per fault that is a number or a word."""
    ap = argparse.ArgumentParser(prog="python -m qreward.testing.judge", description=__doc__)
    ap.add_argument("--port", type=int, default=0, help="0 picks a free one")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--max-seconds", type=float, default=3600.0, help="stop by itself")
    for fault in fields(Faults):
        option = "--" + fault.name.replace("_", "-")
        if isinstance(fault.default, bool):
            ap.add_argument(option, action="store_true")
        elif isinstance(fault.default, int | float | str):
            ap.add_argument(option, type=type(fault.default), default=fault.default)
    return ap


async def serve(judge: FakeJudge, max_seconds: float) -> None:
    """Serve until a signal or the time is up; the first line on stdout is the URL as JSON."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.call_later(max_seconds, stop.set)
    async with judge:
        sys.stdout.write(json.dumps({"url": judge.url, "pid": os.getpid()}) + "\n")
        sys.stdout.flush()
        await stop.wait()


def main() -> None:
    """The command line."""
    ap = parser()
    options = ap.parse_args()
    given = {f.name: getattr(options, f.name) for f in fields(Faults) if hasattr(options, f.name)}
    try:
        judge = FakeJudge(port=options.port, seed=options.seed, keep_bodies=False, **given)
    except ValueError as exc:
        ap.error(str(exc))
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(serve(judge, options.max_seconds))
