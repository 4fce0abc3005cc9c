"""Many streams at once, merged into one with backpressure."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from qreward.errors import BatchError

OnStreamError = Callable[[int, BaseException], Any]

_ITEMS_PER_STREAM = 4


async def merge_streams(
    entries: Sequence[Any],
    opened: Callable[[Any], AsyncIterator[str]],
    workers: int,
    on_stream_error: OnStreamError | None,
) -> AsyncGenerator[tuple[int, str], None]:
    """``(index, piece)`` from *opened(entry)* of every entry, *workers* streams at a time, in order of arrival.

    At most a few pieces per stream are held for a slow consumer; then the streams are read no further. Closing the
    generator cancels everything. Failed streams: ``on_stream_error(index, exc)`` at once, which may be async; without
    it BatchError after the last piece, whose `results` hold the exceptions at their places, None elsewhere.
    """
    workers = min(workers, len(entries))
    if workers == 0:
        return
    merge = _Merge(entries, opened, _ITEMS_PER_STREAM * workers)
    tasks = [asyncio.create_task(merge.work()) for _ in range(workers)]
    failures: list[BaseException | None] = [None] * len(entries)
    try:
        while workers:
            item = await merge.queue.get()
            if item is None:
                workers -= 1
            elif isinstance(item[1], BaseException):
                failures[item[0]] = item[1]
                await _report(on_stream_error, item[0], item[1])
            else:
                yield item[0], item[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if on_stream_error is None and any(failures):
        raise BatchError(failures)


class _Merge:
    def __init__(self, entries: Sequence[Any], opened: Callable[[Any], AsyncIterator[str]], size: int) -> None:
        self.queue: asyncio.Queue[tuple[int, str | BaseException] | None] = asyncio.Queue(size)
        self._entries, self._opened = entries, opened
        self._indices = iter(range(len(entries)))

    async def work(self) -> None:
        for index in self._indices:
            try:
                await self._read(index)
            except asyncio.CancelledError as exc:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                await self.queue.put((index, exc))  # the stream was cancelled from within
            except Exception as exc:
                await self.queue.put((index, exc))
        await self.queue.put(None)

    async def _read(self, index: int) -> None:
        stream: Any = self._opened(self._entries[index])
        if not hasattr(stream, "aclose"):
            async for piece in stream:
                await self.queue.put((index, piece))
            return
        async with aclosing(stream):
            async for piece in stream:
                await self.queue.put((index, piece))


async def _report(on_stream_error: OnStreamError | None, index: int, exc: BaseException) -> None:
    if on_stream_error is not None:
        outcome = on_stream_error(index, exc)
        if inspect.isawaitable(outcome):
            await outcome
