"""Writing a pool's state to a file that a dashboard reads."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

log = logging.getLogger("qreward.client.pool")


class Publisher:
    """A daemon thread that replaces the file atomically; readable by its owner alone."""

    def __init__(self, path: Path, snapshot: Callable[[], dict[str, Any]], every_s: float) -> None:
        self._path = path
        self._snapshot = snapshot
        self._every_s = every_s
        self._stopped = threading.Event()
        self._write()  # a path that cannot be written is an error here, not in a thread
        threading.Thread(target=self._run, name="qreward-snapshot", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(self._every_s):
            try:
                self._write()
            except OSError as exc:
                log.warning("cannot write the snapshot to %s: %s", self._path, exc)

    def _write(self) -> None:
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self._snapshot(), file)
        os.replace(draft, self._path)

    def stop(self) -> None:
        """Write no more."""
        self._stopped.set()
