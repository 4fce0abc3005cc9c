"""Threads that decode and parse for the event loop.

`concurrent.futures` plus `run_in_executor` builds a lock, a condition and two futures per call, which is a
noticeable part of a one-image request; a queue and a callback do.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class Threads:
    """A fixed number of worker threads that serve one event loop."""

    def __init__(self, count: int, name: str) -> None:
        self._queue: queue.SimpleQueue[tuple[Callable[[], Any], asyncio.Future[Any]] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._threads = [threading.Thread(target=self._work, name=f"{name}-{n}", daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def run(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """The outcome of *call*, made in one of the threads."""
        done: asyncio.Future[T] = self._loop.create_future()
        self._queue.put((call, done))
        return done

    def close(self) -> None:
        """Let the calls in progress end, and wait for the threads."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            call, done = job
            try:
                result = call()
            except BaseException as error:
                self._loop.call_soon_threadsafe(_fail, done, error)
            else:
                self._loop.call_soon_threadsafe(_finish, done, result)
            # Not to be kept until the next call comes: the body of a request may hang on it.
            del job, call, done
            result = None


def _finish(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
