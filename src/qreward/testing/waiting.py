"""Waiting for what happens on the other side of a connection."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

_LOOK_S = 0.001


async def eventually(condition: Callable[[], object], within_s: float = 20.0) -> None:
    """Return as soon as *condition()* is true; AssertionError that shows it after *within_s* real seconds."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            try:
                shown = inspect.getsource(condition).strip()
            except (OSError, TypeError):
                shown = repr(condition)
            raise AssertionError(f"not within {within_s:g} s: {shown}")
        await asyncio.sleep(_LOOK_S)
