"""Fixtures of the benchmark's tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from reward_service.cli import main
from reward_service.testing.fake_server import FakeRewardServer


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The runs of the last line."""
        runs: list[dict[str, Any]] = json.loads(self.out.splitlines()[-1])["runs"]
        return runs


@pytest.fixture
def server() -> Iterator[FakeRewardServer]:
    """Offers clip and ocr; a score is the number of characters of the prompt."""
    with FakeRewardServer(("clip", "ocr")) as running:
        yield running


@pytest.fixture
def bench(capfd: pytest.CaptureFixture[str], server: FakeRewardServer) -> Callable[..., Ran]:
    """Runs ``reward-service bench`` in this process, against the server unless told otherwise."""

    def command(*options: object, url: str | None = None) -> Ran:
        capfd.readouterr()
        code = main(["bench", "--url", url or server.url, *map(str, options)])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return command
