#!/usr/bin/env python3
"""Score pictures on a running reward service with nothing but the standard library.

    python3 remote_client_zero_deps.py --url http://localhost:8080 --prompt cat --image a.png --rewards clip

One file, to be copied to any machine; it shows what goes over the wire. The SDK adds retries, failover and
encoding. Exit codes: 0 every reward scored · 1 service not reachable, or the request refused · 2 wrong
usage · 3 some reward failed.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import sys
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Row = tuple[str, str, str, str]


class Trouble(Exception):
    """A one-line explanation with its exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments().parse_args(argv)
    names = [name for word in args.rewards for name in word.split(",") if name]
    try:
        url = _checked(args.url)
        body = {"requests": [_item(args.prompt, path, names) for path in args.image]}
        answer = _post(f"{url}/score", body, args.timeout, args.trust_env)
        rows, failed = _rows(answer, args.image, names)
    except Trouble as trouble:
        print(f"error: {trouble}", file=sys.stderr)
        return trouble.code
    _print_table([("picture", "reward", "sub-metric", "score"), *rows])
    return 3 if failed else 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description="Score pictures on a running reward service; standard library only.",
        epilog="Exit codes: 0 all scored, 1 not reachable or refused, 2 usage, 3 some reward failed.",
    )
    parser.add_argument("--url", required=True, help="base URL, such as http://localhost:8080")
    parser.add_argument("--prompt", default="a photo of a cat", help="text of every picture")
    parser.add_argument("--image", nargs="+", required=True, help="picture files, sent as they are")
    parser.add_argument("--rewards", nargs="+", default=["clip", "hpsv2", "pickscore"], help="names of GET /rewards")
    parser.add_argument("--timeout", type=float, default=180.0, help="seconds (%(default)s)")
    parser.add_argument("--trust-env", action="store_true", help="use the proxies of the environment")
    return parser


def _checked(url: str) -> str:
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise Trouble(2, f"--url {url!r} is not usable; write it like http://localhost:8080")
    return url.rstrip("/")


def _item(prompt: str, path: str, names: Sequence[str]) -> dict[str, Any]:
    try:
        picture = Path(path).read_bytes()
    except OSError as error:
        raise Trouble(2, f"cannot read image {path!r}: {error.strerror}") from error
    return {
        "history": [{"text": prompt, "image_b64": base64.b64encode(picture).decode("ascii")}],
        "required_rewards": list(names),
        # A server answers equal keys once, so that this request may be sent again after a lost answer.
        "idempotency_key": uuid.uuid4().hex,
    }


def _post(url: str, body: dict[str, Any], timeout: float, trust_env: bool) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json", "Accept": "application/json"}
    )
    # Without a handler of its own, urllib takes the proxies of the environment.
    opener = urllib.request.build_opener(*([] if trust_env else [urllib.request.ProxyHandler({})]))
    try:
        with opener.open(request, timeout=timeout) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        raise Trouble(1, f"HTTP {error.code}: {_detail(error.read())}") from error
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise Trouble(1, f"cannot reach {url}: {reason}; does the service run there?") from error
    except ValueError as error:
        raise Trouble(1, f"{url} did not answer with JSON; is it a reward service?") from error


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:500].strip()


def _rows(answer: Any, images: Sequence[str], names: Sequence[str]) -> tuple[list[Row], bool]:
    try:
        results, errors = answer["results"], answer["errors"]
        pairs = list(zip(images, results, errors, strict=True))
    except (TypeError, KeyError, ValueError) as error:
        raise Trouble(1, "the answer is not that of a reward service") from error
    rows: list[Row] = []
    failed = False
    for image, result, failures in pairs:
        for name in names:
            for metric, value in result.get(name, {}).items():
                failed |= value is None
                rows.append((image, name, metric, "not finite" if value is None else f"{value:.4f}"))
            if name in failures or name not in result:
                failed = True
                rows.append((image, name, "failed", failures.get(name, "missing from the answer")))
    return rows, failed


def _print_table(rows: Sequence[Row]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]))


if __name__ == "__main__":
    raise SystemExit(main())
