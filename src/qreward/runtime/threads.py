"""Daemon threads for synchronous bodies: grown on demand, reused, never holding the process, abandonable.

`concurrent.futures` joins its threads at exit, so one stuck body would keep the process alive; these do not.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import threading
from collections.abc import Callable
from contextvars import Context
from typing import TypeVar

from qreward.runtime.watch import BodyExit

T = TypeVar("T")
Job = Callable[[], None]

_IDLE_S = 30.0  # an idle thread ends after this long


class _Workers:
    """All worker threads of the process; there is no cap, a `ThreadGroup` sets one where wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[queue.SimpleQueue[Job]] = []
        self._names = itertools.count(1)

    def submit(self, job: Job) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is not None:
            inbox.put(job)
            return
        name = f"qreward-body-{next(self._names)}"
        threading.Thread(target=self._work, args=(job,), name=name, daemon=True).start()

    def _work(self, job: Job) -> None:
        inbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
        while True:
            job()
            del job  # the arguments of a finished call must not live as long as the thread
            with self._lock:
                self._idle.append(inbox)
            try:
                job = inbox.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if inbox in self._idle:
                        self._idle.remove(inbox)
                        return
                job = inbox.get()  # handed over while this thread was about to end


_workers = _Workers()


def _after_fork() -> None:
    global _workers  # noqa: PLW0603
    _workers = _Workers()  # the parent's threads do not exist here


os.register_at_fork(after_in_child=_after_fork)


class ThreadGroup:
    """Runs bodies in threads, at most *max_threads* at once (None = no cap); an abandoned body counts until it ends."""

    def __init__(self, max_threads: int | None = None) -> None:
        self._max_threads = max_threads
        self._slots: asyncio.Semaphore | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def resize(self, max_threads: int | None) -> None:
        """Another cap for the bodies that start from now on."""
        if max_threads != self._max_threads:
            self._max_threads, self._slots = max_threads, None

    async def run(self, body: Callable[[], T], context: Context) -> T:
        """The result of *body()* run in a copy of *context*; cancelling abandons the body at once."""
        loop = asyncio.get_running_loop()
        slots = self._slots_of(loop)
        if slots is not None:
            await slots.acquire()
        answer: asyncio.Future[tuple[bool, object]] = loop.create_future()
        try:
            _workers.submit(_Body(body, context.copy(), loop, answer, slots))
        except RuntimeError:  # the system has no thread left
            if slots is not None:
                slots.release()
            raise
        return unpack(await answer)

    def _slots_of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Semaphore | None:
        if self._max_threads is None:
            return None
        if self._slots is None or self._loop is not loop:  # the first call, or a new loop after fork
            self._slots, self._loop = asyncio.Semaphore(self._max_threads), loop
        return self._slots


class _Body:
    """One body on its way through a worker thread."""

    def __init__(
        self,
        body: Callable[[], object],
        context: Context,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[tuple[bool, object]],
        slots: asyncio.Semaphore | None,
    ) -> None:
        self._body, self._context, self._loop, self._answer, self._slots = body, context, loop, answer, slots

    def __call__(self) -> None:
        outcome = run_body(self._body, self._context)
        try:
            self._loop.call_soon_threadsafe(self._deliver, outcome)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _deliver(self, outcome: tuple[bool, object]) -> None:
        if self._slots is not None:
            self._slots.release()
        if not self._answer.done():
            self._answer.set_result(outcome)


def run_body(body: Callable[[], object], context: Context | None = None) -> tuple[bool, object]:
    """(True, result) or (False, exception); nothing escapes, so that no thread or loop dies of a body."""
    try:
        return True, body() if context is None else context.run(body)
    except BaseException as exc:
        return False, exc


def unpack(outcome: tuple[bool, object]) -> T:  # type: ignore[type-var]
    """The result, or its exception raised; what would end a loop travels inside `BodyExit`."""
    ok, value = outcome
    if ok:
        return value  # type: ignore[return-value]
    if isinstance(value, KeyboardInterrupt | SystemExit | GeneratorExit | asyncio.CancelledError):
        raise BodyExit(value)
    raise value  # type: ignore[misc]
