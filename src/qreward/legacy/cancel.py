"""Cancelling the attempts that lost, asyncio tasks and futures of threads."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import MutableSequence, MutableSet, Sequence
from typing import Any, Final

CANCELLED_ERRORS: Final = (
    asyncio.CancelledError,
    asyncio.TimeoutError,
    concurrent.futures.CancelledError,
    concurrent.futures.TimeoutError,
)

AsyncDone = MutableSequence[asyncio.Task[Any]] | MutableSet[asyncio.Task[Any]]
SyncDone = MutableSequence[concurrent.futures.Future[Any]] | MutableSet[concurrent.futures.Future[Any]]


async def cancel_async_tasks(
    pending: Sequence[asyncio.Task[Any]], done: AsyncDone, retry_interval: float | None
) -> None:
    """Empty *done*, cancel *pending* and wait at most *retry_interval* seconds (None = for ever) for their end."""
    _empty(done)
    unfinished = [task for task in pending if not task.done()]
    for task in unfinished:
        task.cancel()
    if unfinished:
        ended, _ = await asyncio.wait(unfinished, timeout=retry_interval)
        _empty(ended)


def cancel_sync_tasks(
    not_done: Sequence[concurrent.futures.Future[Any]], done: SyncDone, retry_interval: float | None
) -> None:
    """Empty *done* and cancel what has not begun in *not_done*; wait at most *retry_interval* s for what runs."""
    _empty(done)
    unfinished = [future for future in not_done if not future.done() and not future.cancel()]
    if unfinished:
        with contextlib.suppress(*CANCELLED_ERRORS):
            concurrent.futures.wait(unfinished, timeout=retry_interval)


def _empty(done: Any) -> None:
    """Take everything out; reading the exceptions keeps asyncio from reporting them as never retrieved."""
    while len(done):
        with contextlib.suppress(*CANCELLED_ERRORS):
            done.pop().exception()
