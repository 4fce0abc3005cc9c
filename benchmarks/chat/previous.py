"""The interpreter that has QReward 0.1.7: one that is given, or a virtual environment for the time of a run."""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PACKAGES = ("qreward==0.1.7", "orjson")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Without one of them 0.1.7 is left out."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--python-017", metavar="PYTHON", help="an interpreter that has QReward 0.1.7")
    group.add_argument("--build-017", action="store_true", help="install QReward 0.1.7 into a temporary environment")


@contextlib.contextmanager
def interpreter(args: argparse.Namespace) -> Iterator[str | None]:
    """The path of the interpreter, None without one."""
    if not args.build_017:
        yield args.python_017
        return
    with tempfile.TemporaryDirectory(prefix="qreward-017-") as folder:
        print(f"installing {' '.join(_PACKAGES)}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(Path(folder) / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *_PACKAGES], check=True)
        yield python


def environment() -> dict[str, str]:
    """For a child in any interpreter: it finds its own packages, and 0.1.7 uses its fast JSON."""
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "JSON_LIB": "orjson"}
