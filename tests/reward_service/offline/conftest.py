"""Fixtures of the offline tests: the command, a server, and folders of pictures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reward_service.cli import main
from reward_service.testing.fake_server import FakeRewardServer


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def server() -> Iterator[FakeRewardServer]:
    """Offers clip and ocr; a score is the number of characters of the prompt."""
    with FakeRewardServer(("clip", "ocr")) as running:
        yield running


@pytest.fixture
def score(capfd: pytest.CaptureFixture[str], server: FakeRewardServer) -> Callable[..., Ran]:
    """Runs ``reward-service score`` in this process, against the server unless told otherwise."""

    def command(source: Path, out: Path, *options: object, rewards: str = "clip", url: str | None = None) -> Ran:
        capfd.readouterr()
        words = ["score", source, "-o", out, "--rewards", rewards, "--url", url or server.url, *options]
        code = main(list(map(str, words)))
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with ``0.png`` to ``9.png``, each of its own colour."""
    folder = tmp_path / "pics"
    folder.mkdir()
    for number in range(10):
        Image.new("RGB", (8, 8), (25 * number, 0, 90)).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def table(tmp_path: Path, pictures: Path) -> Path:
    """``in.jsonl`` with ten rows; the prompt of row *i* has *i* + 1 characters."""
    rows = [{"id": f"r{i}", "prompt": "x" * (i + 1), "image": f"pics/{i}.png"} for i in range(10)]
    return write_rows(tmp_path / "in.jsonl", rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write *rows* as JSONL."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def write() -> Callable[[Path, list[dict[str, Any]]], Path]:
    """Writes rows as JSONL."""
    return write_rows


@pytest.fixture
def read() -> Callable[[Path], list[dict[str, Any]]]:
    """Reads a JSONL or Parquet file."""

    def rows(path: Path) -> list[dict[str, Any]]:
        if path.suffix == ".parquet":
            from pyarrow.parquet import read_table

            return read_table(path).to_pylist()
        return [json.loads(line) for line in path.read_text().splitlines()]

    return rows
