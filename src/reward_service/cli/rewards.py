"""``reward-service rewards``: the scorers of this installation, or the rewards of a running service."""

from __future__ import annotations

import argparse
import urllib.error
from collections import Counter
from typing import Any

from rich.markup import escape
from rich.table import Table

from reward_service.cli.console import output_console
from reward_service.cli.probe import get_json
from reward_service.errors import ClientError, ConfigError, ScorerLoadError
from reward_service.scorers import registry


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `entry.Command`."""
    parser.add_argument("--url", help="ask the service there instead, such as http://localhost:8080")


def run(args: argparse.Namespace) -> int:
    """Print the table."""
    output_console().print(_registered() if args.url is None else _offered(args.url.rstrip("/")))
    return 0


def _registered() -> Table:
    table = Table("scorer", "module", "sub-metrics")
    for name in registry.names():
        try:
            scorer = registry.get_scorer_cls(name)
        except ScorerLoadError as error:
            table.add_row(name, "", f"[red]{escape(str(error))}[/red]")
            continue
        metrics = getattr(scorer, "sub_metric_names", ())
        table.add_row(name, scorer.__module__, ", ".join(metrics) or "as configured")
    return table


def _offered(url: str) -> Table:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--url {url!r} is not a URL; write it like http://localhost:8080")
    try:
        status, health = get_json(f"{url}/health")
    except OSError as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise ClientError(f"{url}: {reason}; check that the service runs and that its URL is right") from error
    rewards = health.get("rewards")
    if not isinstance(rewards, dict):
        raise ClientError(f"{url}/health: HTTP {status} without rewards; is this a reward service?")
    table = Table("reward", "replicas", "reason", title=f"{escape(url)}: {escape(str(health.get('status')))}")
    details = health.get("details") or {}
    for name, replicas in sorted(rewards.items()):
        states = Counter(map(str, replicas))
        shown = ", ".join(state if count == 1 else f"{count} × {state}" for state, count in states.items())
        table.add_row(escape(name), escape(shown), escape(_reasons(details.get(name))))
    return table


def _reasons(details: Any) -> str:
    replicas = details.get("replicas", ()) if isinstance(details, dict) else ()
    reasons = [replica["reason"] for replica in replicas if replica.get("reason")]
    return "; ".join(dict.fromkeys(reasons))
