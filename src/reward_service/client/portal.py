"""The event loop that the SDK owns: one background thread per process, started on first use.

Callers come from no loop, or from loops that change with every ``asyncio.run``; connections live here.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from reward_service.client.errors import ClientClosed

T = TypeVar("T")
_EXIT_PATIENCE_S = 2.0


class Resource(Protocol):
    """What lives in a portal's loop."""

    async def aclose(self) -> None:
        """Release everything; called in the loop."""


class Portal:
    """A running loop in a daemon thread; threads hand coroutines in with `submit`."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        # Not the policy's loop: what the trainer runs on must not matter here.
        self.loop = asyncio.SelectorEventLoop()
        self.resources: set[Resource] = set()
        self._thread = threading.Thread(target=self._run, name="reward-client", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    def submit(self, start: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run ``start()`` in the loop. Cancelling the future cancels it."""
        if not self._thread.is_alive():
            raise ClientClosed("the interpreter is exiting; no further calls are possible")
        return asyncio.run_coroutine_threadsafe(start(), self.loop)

    def release(self, resource: Resource) -> Future[None]:
        """Close *resource*; nothing happens in a forked child, which must not touch it, nor twice."""
        if os.getpid() == self._pid and self._thread.is_alive() and resource in self.resources:
            return self.submit(resource.aclose)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def stop(self) -> None:
        """Close every resource, cancel what runs, end the thread; never waits long."""
        if not self._thread.is_alive():
            return
        with contextlib.suppress(Exception):
            self.submit(self._close_all).result(_EXIT_PATIENCE_S)
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_EXIT_PATIENCE_S)

    async def _close_all(self) -> None:
        for resource in list(self.resources):
            await resource.aclose()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class _Process:
    """What this process owns."""

    def __init__(self) -> None:
        self.portal: Portal | None = None
        self.orphans: list[Portal] = []
        self.renew_locks()

    def renew_locks(self) -> None:
        self.portal_lock = threading.Lock()
        self.creation_lock = threading.Lock()


_process = _Process()


def current_portal() -> Portal:
    """The portal of this process."""
    with _process.portal_lock:
        if _process.portal is None:
            _process.portal = Portal()
        return _process.portal


def creation_lock() -> threading.Lock:
    """The lock under which per-process things are made; a forked child gets a fresh one."""
    return _process.creation_lock


def _stop_at_exit() -> None:
    if _process.portal is not None:
        _process.portal.stop()


def _forget_in_child() -> None:
    # Another thread of the parent may have held them.
    _process.renew_locks()
    if _process.portal is not None:
        # The parent uses the loop and the sockets behind these copies: finalising them here would wake that
        # loop and warn about unclosed sessions, so they stay referenced.
        _process.orphans.append(_process.portal)
        _process.portal = None


os.register_at_fork(after_in_child=_forget_in_child)
atexit.register(_stop_at_exit)
