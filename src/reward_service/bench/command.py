"""The command line of the benchmark, shared by ``reward-service bench`` and the script."""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from reward_service.bench.load import Point, Result, Target, measure
from reward_service.bench.plan import Plan, painted_pictures, read_pictures, request_body
from reward_service.bench.plot import check_plot, write_plot
from reward_service.bench.report import failure_lines, json_file, json_line, level_table, side_by_side
from reward_service.bench.stats import Level, levels
from reward_service.client import RewardClient
from reward_service.errors import ClientError, ConfigError

OK, UNREACHABLE, SOME_FAILED, INTERRUPTED = 0, 1, 3, 130
_PROBE_TIMEOUT_S = 30.0
# Wide enough for the table when the output is a file.
_FILE_WIDTH = 140

EPILOG = (
    "Exit codes: 0 every request succeeded, 1 not reachable or a reward not offered, 2 wrong usage or no "
    "image, 3 some request failed. The last line of the output is JSON."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    parser.add_argument("--url", required=True, help="base URL, such as http://localhost:8080")
    level = parser.add_mutually_exclusive_group(required=True)
    level.add_argument("--concurrency", type=_count, metavar="N", help="concurrent callers")
    level.add_argument("--sweep", type=_count, nargs="+", metavar="N", help="several levels, one after another")
    parser.add_argument("--total", type=_count, default=1000, metavar="N", help="requests per level (%(default)s)")
    parser.add_argument("--rewards", nargs="+", default=["clip"], metavar="NAME", help="by space or comma (clip)")
    parser.add_argument("--batch-size", type=_count, default=1, metavar="N", help="items per request (%(default)s)")
    parser.add_argument(
        "--batch-sweep", type=_count, nargs="+", metavar="N", help="several sizes; overrides --batch-size"
    )
    parser.add_argument("--per-reward-isolated", action="store_true", help="measure each reward alone")
    parser.add_argument("--repetitions", type=_count, default=1, metavar="N", help="of everything (%(default)s)")
    parser.add_argument("--prompt", default="a photo of a cat", help="text of every item")
    parser.add_argument(
        "--image", nargs="+", type=Path, default=[], metavar="FILE", help="pictures; painted without it"
    )
    parser.add_argument(
        "--timeout", type=_timeout, default=None, metavar="S", help="seconds per request, or none (none)"
    )
    parser.add_argument("--trust-env", action="store_true", help="use the proxies of the environment")
    parser.add_argument("--output", type=Path, metavar="FILE.json", help="write every number there")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE.png", help="plot latency against throughput (also .svg, .pdf)"
    )


def run(args: argparse.Namespace) -> int:
    """Measure and report; raises ConfigError for wrong usage, ClientError when the service is not there."""
    plan = _plan(args)
    for path in filter(None, (args.output, args.plot)):
        if not path.parent.is_dir():
            raise ConfigError(f"{path}: the folder {path.parent} does not exist; create it")
    if args.plot is not None:
        check_plot(args.plot)
    pictures = read_pictures(args.image) or painted_pictures(max(plan.batch_sizes))
    target = Target(args.url.rstrip("/"), args.timeout, args.trust_env)
    _probe(target, plan.rewards)
    results: list[Result] = []
    try:
        with _Bar(plan) as bar:
            for point in plan.points():
                bar.begin(point)
                body = request_body(point, args.prompt, pictures)
                results.append(asyncio.run(measure(target, point, body, plan.total, bar)))
    except KeyboardInterrupt:
        _report(args, plan, results)
        return INTERRUPTED
    return SOME_FAILED if any(level.failed for level in _report(args, plan, results)) else OK


def _plan(args: argparse.Namespace) -> Plan:
    rewards = tuple(dict.fromkeys(name for word in args.rewards for name in word.split(",") if name))
    if not rewards:
        raise ConfigError("--rewards names no reward; give at least one name of GET /rewards")
    return Plan(
        rewards,
        tuple(args.sweep or (args.concurrency,)),
        tuple(args.batch_sweep or (args.batch_size,)),
        args.repetitions,
        args.per_reward_isolated,
        args.total,
    )


def _probe(target: Target, rewards: Sequence[str]) -> None:
    try:
        client = RewardClient(target.url, timeout=_PROBE_TIMEOUT_S, trust_env=target.trust_env, max_retries=0)
    except ValueError as error:
        raise ConfigError(f"--url: {error}") from error
    with client:
        offered = client.rewards()
    missing = [name for name in rewards if name not in offered]
    if missing:
        raise ClientError(f"{target.url} does not offer {', '.join(missing)}; it offers {', '.join(offered)}")


def _report(args: argparse.Namespace, plan: Plan, results: Sequence[Result]) -> list[Level]:
    measured = levels(results)
    console = Console()
    if not console.is_terminal:
        console = Console(width=_FILE_WIDTH)
    console.print(level_table(measured))
    for part in (side_by_side(measured), *failure_lines(measured)):
        if part is not None:
            console.print(part)
    if args.output is not None:
        args.output.write_bytes(json_file(plan.rewards, results))
    if args.plot is not None:
        write_plot(args.plot, measured)
    sys.stdout.write(json_line(plan.rewards, results) + "\n")
    return measured


class _Bar:
    """A progress bar on a terminal; a line per level and per half minute in a log."""

    def __init__(self, plan: Plan) -> None:
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[red]{task.fields[failed]}[/red]"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._task = self._bar.add_task("", total=plan.count(), failed="")
        self._total = plan.total
        self._repetitions = plan.repetitions
        self._done = self._failed = 0
        self._began = time.monotonic()

    def begin(self, point: Point) -> None:
        """The next measurement starts."""
        text = f"{'+'.join(point.rewards)}, callers {point.concurrency}, batch {point.batch_size}"
        if self._repetitions > 1:
            text += f", repetition {point.repetition}"
        self._done = self._failed = 0
        self._bar.update(self._task, description=text)
        self._say(text)

    def advance(self, ok: bool) -> None:
        """See `load.Progress`."""
        self._done += 1
        self._failed += not ok
        failed = f"{self._failed} failed" if self._failed else ""
        self._bar.update(self._task, advance=1, failed=failed)

    def beat(self) -> None:
        """See `load.Progress`."""
        self._say(f"{self._done} of {self._total} requests, {self._failed} failed")

    def _say(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(f"[{time.monotonic() - self._began:7.1f} s] {text}", markup=False)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _timeout(text: str) -> float | None:
    if text.lower() == "none":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0, nor none")
    return seconds
