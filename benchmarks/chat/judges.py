"""Fake judges in processes of their own: started, asked, hung and killed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

# Answers of these kinds are shown; a judge counts more.
COUNTS = ("received", "429", "503", "500", "reset", "client_gone")


class Judge:
    """One process of `qreward.testing.judge`. Counts of one that was killed are the last that it told."""

    def __init__(self, faults: Mapping[str, Any], seed: int) -> None:
        words = [f"--{name.replace('_', '-')}={value}" for name, value in faults.items()]
        command = [sys.executable, "-m", "qreward.testing.judge", f"--seed={seed}", "--max-seconds=900", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the judge did not start: {' '.join(command)}")
        self.url: str = json.loads(line)["url"]
        self._last: dict[str, Any] = {}

    def counts(self) -> dict[str, int]:
        """What came so far."""
        if self._process.poll() is None:
            with contextlib.suppress(OSError):
                self._last = self._admin("stats")
        return {name: self._last.get(name, 0) for name in COUNTS}

    def kill(self) -> None:
        """End it as a crash does."""
        self.counts()
        self._process.kill()
        self._process.wait(10)

    def hang(self) -> None:
        """Accept requests from now on and answer none."""
        self._admin("config", {"dead": "hang"})

    def stop(self) -> None:
        """End it properly."""
        self._process.terminate()
        self._process.communicate(timeout=10)

    def _admin(self, path: str, body: object = None) -> dict[str, Any]:
        address = self.url.removesuffix("v1") + f"admin/{path}"
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(address, data, timeout=30) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found


@contextlib.contextmanager
def running(number: int, faults: Mapping[str, Any], seed: int) -> Iterator[list[Judge]]:
    """*number* judges, stopped at the end whatever happened."""
    with contextlib.ExitStack() as stack:
        judges = []
        for index in range(number):
            judge = Judge(faults, seed + index)
            stack.callback(judge.stop)
            judges.append(judge)
        yield judges
