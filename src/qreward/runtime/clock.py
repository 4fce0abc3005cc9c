"""The one clock of the runtime, so that tests can run in virtual time."""

from __future__ import annotations

import time
from collections.abc import Callable

_source: Callable[[], float] = time.monotonic


def monotonic() -> float:
    """Monotonic seconds."""
    return _source()


def install(source: Callable[[], float]) -> None:
    """Read the time from *source* until `reset`; for tests."""
    global _source  # noqa: PLW0603 - one clock per process
    _source = source


def reset() -> None:
    """Back to `time.monotonic`."""
    global _source  # noqa: PLW0603
    _source = time.monotonic
