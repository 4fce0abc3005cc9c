"""Fixtures of the command line's tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from reward_service.cli import main


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command in this process."""

    def command(*argv: object) -> Ran:
        capfd.readouterr()
        code = main([str(word) for word in argv])
        captured = capfd.readouterr()
        return Ran(code, captured.out, captured.err)

    return command


@pytest.fixture
def python() -> Callable[..., Ran]:
    """Runs Python in a fresh process."""

    def process(*argv: object) -> Ran:
        command = [sys.executable, *map(str, argv)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    return process
