"""Waking those who wait on event loops, from any thread and any loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from qreward.runtime import clock


def call_on(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: Any) -> bool:
    """Run *call* on *loop*: at once when it is the running one, else soon. False when that loop is closed."""
    if loop is asyncio._get_running_loop():
        call(*args)
        return True
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True


class Alarm:
    """One timer for a queue, on the loop of whoever is woken first. Its owner holds a lock around `set`."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._armed: tuple[asyncio.AbstractEventLoop, float] | None = None

    def set(self, loop: asyncio.AbstractEventLoop, wait_s: float) -> bool:
        """Ring in *wait_s* seconds, unless that loop's timer rings before; False when *loop* is closed."""
        now = clock.monotonic()
        armed = self._armed
        if armed is not None and armed[0] is loop and now < armed[1] <= now + wait_s and not loop.is_closed():
            return True
        self._armed = armed = (loop, now + wait_s)
        return call_on(loop, self._start, loop, wait_s, armed)

    def _start(self, loop: asyncio.AbstractEventLoop, wait_s: float, armed: object) -> None:
        loop.call_later(wait_s, self._fire, armed)

    def _fire(self, armed: object) -> None:
        if self._armed is armed:
            self._armed = None
        self._ring()
