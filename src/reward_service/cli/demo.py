"""``reward-service demo``: a real service on the CPU, real pictures, a table."""

from __future__ import annotations

import argparse
import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

import reward_service
from reward_service.cli.arguments import port, read_config
from reward_service.cli.child import ChildService
from reward_service.cli.console import output_console
from reward_service.cli.extras import SERVER, require
from reward_service.client import RewardClient, RewardRequest, ScoreResponse
from reward_service.demo_pictures import Sample, demo_samples
from reward_service.errors import ConfigError

_DEFAULT = Path("configs", "demo.yaml")
_SOME_FAILED = 3
_SERVICE_FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `entry.Command`."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="another service (configs/demo.yaml)")
    parser.add_argument(
        "--port", type=port, help="instead of the config's, or a free one where that is taken; 0: a free one"
    )
    parser.add_argument("--keep", action="store_true", help="leave the service running until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """Start, score, show, stop; 0 only if every reward scored every picture and the service ended well."""
    require("demo", (*SERVER, "skimage"), "demo")
    path = args.config or demo_config()
    config = read_config(str(path))
    names = [reward.name for reward in config.rewards]
    samples = demo_samples()
    console = output_console()
    with ChildService(path, _port(args.port, config.server.port), args.log_level) as service:
        service.wait_ready()
        began = time.monotonic()
        with RewardClient(service.url, image_format="PNG") as client:
            response = client.score_detailed(
                [RewardRequest([(sample.prompt, sample.image)], names) for sample in samples]
            )
        seconds = time.monotonic() - began
        console.print(scores_table(samples, names, response))
        failed = f", [red]{response.failures} failed[/red]" if response.failures else ""
        console.print(f"{len(samples)} pictures × {len(names)} rewards in {seconds:.2f} s over HTTP{failed}")
        if args.keep:
            console.print(f"running at {service.url} (docs at /docs); Ctrl-C stops it")
            with contextlib.suppress(KeyboardInterrupt):
                service.wait()
        code = service.stop()
    if code != 0:
        console.print(f"[red]the service ended with exit code {code}[/red]; its messages are above")
        return _SERVICE_FAILED
    return _SOME_FAILED if response.failures else 0


def demo_config() -> Path:
    """``configs/demo.yaml`` of the working directory, the repository, or the installed package."""
    package = Path(reward_service.__file__).parent
    places = [Path(), package.parent.parent, package]
    for place in places:
        if (place / _DEFAULT).is_file():
            return place / _DEFAULT
    raise ConfigError(f"no {_DEFAULT} in {Path.cwd()}; run it in the repository, or give --config FILE")


def scores_table(samples: Sequence[Sample], names: Sequence[str], response: ScoreResponse) -> Table:
    """One row per picture, one column per sub-metric; a failed reward shows its error."""
    columns = [
        (name, metric)
        for name in names
        for metric in dict.fromkeys(m for scores in response.results for m in scores.get(name, {})) or (name,)
    ]
    table = Table("picture", "prompt")
    for name, metric in columns:
        table.add_column(escape(name if name == metric else f"{name}.{metric}"), justify="right")
    for sample, scores, errors in zip(samples, response.results, response.errors, strict=True):
        cells = [_cell(scores, errors, name, metric) for name, metric in columns]
        table.add_row(escape(sample.name), escape(sample.prompt), *cells)
    return table


def _cell(scores: dict[str, dict[str, float]], errors: dict[str, str], name: str, metric: str) -> str:
    if name in errors:
        return f"[red]{escape(errors[name])}[/red]"
    value = scores.get(name, {}).get(metric)
    return "–" if value is None else f"{value:.4f}"


def _port(asked: int | None, configured: int) -> int:
    if asked is not None:
        return asked
    try:
        with socket.create_server(("127.0.0.1", configured)):
            return configured
    except OSError:
        return 0
