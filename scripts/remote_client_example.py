#!/usr/bin/env python
"""Score pictures on a running reward service with the SDK, and print a table.

    python scripts/remote_client_example.py --url http://localhost:8080 --image a.png b.png --rewards clip

Needs `pip install reward-service` (no torch, no Ray). Without --image it paints a picture of its own.
Exit codes: 0 every reward scored · 1 service not reachable, or the request refused · 2 wrong usage · 3 some
reward failed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reward_service.client import ClientError, RewardClient, RewardRequest, ScoreResponse


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments().parse_args(argv)
    names = [name for word in args.rewards for name in word.split(",") if name]
    for path in args.image:
        if not path.is_file():
            return _fail(2, f"no image file {str(path)!r}")
    pictures: list[Image.Image | Path] = list(args.image) or [_painted()]
    try:
        client = RewardClient(args.url, timeout=args.timeout, trust_env=args.trust_env, on_error="ignore")
    except ValueError as error:
        return _fail(2, str(error))
    requests = [RewardRequest(history=[(args.prompt, picture)], required_rewards=names) for picture in pictures]
    try:
        with client:
            response = client.score_detailed(requests)
    except ClientError as error:
        return _fail(1, str(error))
    _show([str(path) for path in args.image] or ["(painted)"], names, response)
    return 3 if response.failures else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Score pictures on a running reward service.",
        epilog="Exit codes: 0 all scored, 1 not reachable or refused, 2 usage, 3 some reward failed.",
    )
    parser.add_argument("--url", required=True, help="base URL, such as http://localhost:8080")
    parser.add_argument("--prompt", default="a photo of a cat", help="text of every picture")
    parser.add_argument("--image", nargs="+", type=Path, default=[], help="picture files, sent as they are")
    parser.add_argument("--rewards", nargs="+", default=["clip", "hpsv2", "pickscore"], help="names of GET /rewards")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds per attempt (%(default)s)")
    parser.add_argument("--trust-env", action="store_true", help="use the proxies of the environment")
    return parser


def _painted() -> Image.Image:
    red, green = Image.linear_gradient("L"), Image.radial_gradient("L")
    return Image.merge("RGB", (red, green, red.rotate(90))).resize((512, 512))


def _show(pictures: Sequence[str], names: Sequence[str], response: ScoreResponse) -> None:
    table = Table("picture", "reward", "sub-metric")
    table.add_column("score", justify="right")
    for picture, result, errors in zip(pictures, response.results, response.errors, strict=True):
        for name in names:
            for metric, value in result.get(name, {}).items():
                table.add_row(escape(picture), name, metric, f"{value:.4f}")
            if name in errors:
                table.add_row(escape(picture), name, "failed", escape(errors[name]), style="red")
    Console().print(table)


def _fail(code: int, message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
