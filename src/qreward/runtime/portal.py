"""The way from synchronous code to the driver: one event loop on a daemon thread, started at the first use.

The loop survives nothing across `fork`: a child starts its own. The parent's is kept referenced there, because
collecting it would close file descriptors that both share.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qreward.runtime.threads import run_body, unpack
from qreward.runtime.watch import BodyExit

T = TypeVar("T")
Body = Callable[[], object]


class Portal:
    """An event loop on its own daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="qreward-portal", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def here(self) -> bool:
        """Whether the caller is on the portal's own thread."""
        return threading.current_thread() is self._thread

    def run(self, main: Callable[[Caller], Coroutine[Any, Any, T]]) -> T:
        """The result of *main(caller)* on the loop, while the calling thread runs the bodies it is handed.

        Interrupting the caller (KeyboardInterrupt) cancels the work.
        """
        caller = Caller(self.loop)
        task: list[asyncio.Task[T]] = []

        def start() -> None:
            task.append(self.loop.create_task(main(caller)))
            task[0].add_done_callback(caller.finished)

        self.loop.call_soon_threadsafe(start)
        try:
            result: T = caller.serve()
            return result
        except BodyExit as exc:
            raise exc.cause from None
        except BaseException:
            self.loop.call_soon_threadsafe(lambda: task[0].cancel() if task else None)
            raise


class Caller:
    """The thread that waits for a call; it can run the call's body itself."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._inbox: queue.SimpleQueue[Callable[[], None] | tuple[bool, object]] = queue.SimpleQueue()

    async def run(self, body: Body) -> Any:
        """The result of *body()* in the waiting thread, with its context and thread-locals."""
        answer: asyncio.Future[tuple[bool, object]] = self._loop.create_future()

        def job() -> None:
            outcome = run_body(body)
            self._loop.call_soon_threadsafe(_settle, answer, outcome)

        self._inbox.put(job)
        return unpack(await answer)

    def serve(self) -> Any:
        """Run bodies until the call is over, then return its result or raise its exception."""
        while True:
            item = self._inbox.get()
            if isinstance(item, tuple):
                return unpack_call(item)
            item()

    def finished(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._inbox.put((False, asyncio.CancelledError()))
        elif (error := task.exception()) is not None:
            self._inbox.put((False, error))
        else:
            self._inbox.put((True, task.result()))


def _settle(answer: asyncio.Future[tuple[bool, object]], outcome: tuple[bool, object]) -> None:
    if not answer.done():
        answer.set_result(outcome)


def unpack_call(outcome: tuple[bool, object]) -> Any:
    """The result of a call or its exception, raised in the caller's thread."""
    ok, value = outcome
    if ok:
        return value
    raise value  # type: ignore[misc]


_lock = threading.Lock()
_portals: list[Portal] = []
_orphans: list[Portal] = []


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - the parent's may be held
    _lock = threading.Lock()
    _orphans.extend(_portals)
    _portals.clear()


os.register_at_fork(after_in_child=_after_fork)


def portal() -> Portal:
    """The process's portal; from a portal's own thread the next one, since a loop cannot wait for itself."""
    with _lock:
        for candidate in _portals:
            if not candidate.here:
                return candidate
        _portals.append(Portal())
        return _portals[-1]


def run(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """The result of the coroutine *main()*, awaited on the portal's loop from synchronous code."""
    return portal().run(lambda _caller: main())
