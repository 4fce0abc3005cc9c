"""``reward-service score``: a file or folder in, the same rows with their scores out."""

from __future__ import annotations

import argparse
import contextlib
import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from reward_service.cli.arguments import count, read_config
from reward_service.cli.child import ChildService
from reward_service.cli.console import output_console
from reward_service.cli.extras import SERVER, require
from reward_service.client import RewardClient
from reward_service.client.settings import IMAGE_FORMATS
from reward_service.errors import ClientError, ConfigError
from reward_service.offline import Columns, Prepared, ScoreJob, prepare
from reward_service.offline.items import ORIGINAL
from reward_service.offline.report import check_summary, extreme_rows, summary_table, write_summary

_SOME_FAILED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `entry.Command`."""
    parser.add_argument(
        "input",
        type=Path,
        metavar="INPUT",
        help=".jsonl, .csv, .parquet, or a folder of pictures and captions",
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT", help=".jsonl or .parquet")
    parser.add_argument("--rewards", required=True, metavar="A,B", help="names, separated by commas")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="a running service")
    where.add_argument("--config", type=Path, metavar="FILE", help="start this service for the duration")
    parser.add_argument("--prompt-column", metavar="NAME", help="(prompt, else caption or text)")
    parser.add_argument("--image-column", metavar="NAME", help="(image, else image_path or file_name)")
    parser.add_argument("--video-column", metavar="NAME", help="paths or bytes of videos")
    parser.add_argument("--metadata-column", metavar="NAME", help="JSON objects for the scorers")
    parser.add_argument("--batch-size", type=count, default=32, metavar="N", help="rows per request (%(default)s)")
    parser.add_argument("--concurrency", type=count, default=4, metavar="N", help="requests at once (%(default)s)")
    parser.add_argument(
        "--resume", action=argparse.BooleanOptionalAction, default=True,
        help="go on where the last run ended (default), or start over",
    )  # fmt: skip
    parser.add_argument("--retry-failed", action="store_true", help="score the rows with an error again")
    parser.add_argument(
        "--summary", type=Path, metavar="PATH", help="histograms and examples: a folder, .html, or .png"
    )
    parser.add_argument(
        "--image-format", type=str.upper, default=ORIGINAL, choices=[ORIGINAL.upper(), *IMAGE_FORMATS],
        metavar="FORMAT", help="send files as they are (original), or encode anew: PNG, WEBP, JPEG",
    )  # fmt: skip
    parser.add_argument("--timeout", type=float, default=180.0, metavar="S", help="seconds per attempt (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Check, score, write, summarise."""
    job = _job(args)
    if args.summary is not None:
        check_summary(args.summary, args.input)
    if args.config is not None:
        require("server", SERVER, "score --config")
        _check_offered(job.rewards, [reward.name for reward in read_config(str(args.config)).rewards])
    notes = Console(stderr=True)
    with prepare(job) as prepared:
        if prepared.pending:
            _score(args, prepared, notes)
        else:
            notes.print("every row is scored already; the service is not needed")
        tally = prepared.tally()
        rows = prepared.write(tally, extreme_rows(tally) if args.summary is not None else None)
        output_console().print(summary_table(tally))
        written = [job.output]
        if args.summary is not None:
            columns, base = prepared.job.columns, prepared.source.base
            written += write_summary(args.summary, tally, rows, columns, base)
    notes.print(f"wrote {', '.join(map(str, written))}", markup=False, highlight=False, soft_wrap=True)
    return _SOME_FAILED if tally.failed_rows else 0


def _job(args: argparse.Namespace) -> ScoreJob:
    rewards = tuple(dict.fromkeys(name for name in args.rewards.split(",") if name))
    if not rewards:
        raise ConfigError("--rewards names no reward; `reward-service rewards --url URL` lists them")
    return ScoreJob(
        input=args.input,
        output=args.output,
        rewards=rewards,
        columns=Columns(args.prompt_column, args.image_column, args.video_column, args.metadata_column),
        batch_size=args.batch_size,
        concurrency=args.concurrency,
        resume=args.resume,
        retry_failed=args.retry_failed,
        image_format=args.image_format.lower(),
    )


def _score(args: argparse.Namespace, prepared: Prepared, notes: Console) -> None:
    done = prepared.total - prepared.pending
    if done:
        notes.print(f"{done:,} of {prepared.total:,} rows are scored already; going on")
    with _service(args) as url, _client(args, url) as client:
        _check_offered(prepared.job.rewards, client.rewards())
        with _bar(notes) as bar:
            task = bar.add_task("scoring", total=prepared.total, completed=done, failed="")
            failures = 0

            def advance(rows: int, failed: int) -> None:
                nonlocal failures
                failures += failed
                bar.update(task, advance=rows, failed=f"{failures:,} failed" if failures else "")

            try:
                prepared.score(client, advance)
            except ClientError as error:
                raise ClientError(
                    f"{error}\nwhat was scored so far is kept; run the same command again to go on"
                ) from error


@contextlib.contextmanager
def _service(args: argparse.Namespace) -> Iterator[str]:
    if args.url is not None:
        yield args.url
        return
    with ChildService(args.config, log_level=args.log_level) as service:
        service.wait_ready()
        yield service.url


def _client(args: argparse.Namespace, url: str) -> RewardClient:
    image_format = "PNG" if args.image_format == ORIGINAL.upper() else args.image_format
    try:
        return RewardClient(url, args.timeout, image_format, max_connections=max(args.concurrency, 8))
    except ValueError as error:
        raise ConfigError(f"--url or --timeout: {error}") from error


def _bar(notes: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("[red]{task.fields[failed]}[/red]"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=notes,
    )


def _check_offered(asked: Sequence[str], offered: Sequence[str]) -> None:
    for name in asked:
        if name not in offered:
            near = difflib.get_close_matches(name, offered, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ConfigError(f"--rewards: no reward {name!r}; {hint}The service has {', '.join(offered)}")
