"""Many calls at once: a few workers, results in input order, failures where they belong."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from qreward.client.batch_stream import OnStreamError, merge_streams
from qreward.errors import BatchError, ConfigError

log = logging.getLogger("qreward.client.openai")

UNSET: Final = object()
OnError = Any
"""What becomes of a failed entry.

"return": its exception stands at its place. "none": None does. "raise": when all entries are finished, BatchError with
all `results`. "first": the first failure cancels the rest and is raised itself. A callable: ``on_error(exc)``, which
may be async, gives the entry. Anything but a string: that value.
"""

_MODES = ("return", "none", "raise", "first")


async def run_batch(
    entries: Sequence[Any],
    call: Callable[[Any, int], Awaitable[Any]],
    *,
    name: str,
    workers: int,
    on_error: OnError,
    progress: Any = False,
) -> list[Any]:
    """``call(entry, index)`` for every entry, *workers* at a time."""
    if isinstance(on_error, str) and on_error not in _MODES:
        raise ConfigError(f"on_error={on_error!r}; use one of {', '.join(_MODES)}, a callable, or a value")
    batch = _Batch(entries, call, name, on_error, Progress(progress, len(entries), name))
    tasks = [asyncio.create_task(batch.work()) for _ in range(min(workers, len(entries)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        batch.progress.close()
    if on_error == "raise" and batch.failures:
        raise BatchError(batch.results)
    return batch.results


class _Batch:
    def __init__(
        self,
        entries: Sequence[Any],
        call: Callable[[Any, int], Awaitable[Any]],
        name: str,
        on_error: OnError,
        progress: Progress,
    ) -> None:
        self.results: list[Any] = [None] * len(entries)
        self.failures = 0
        self.progress = progress
        self._entries = entries
        self._indices = iter(range(len(entries)))
        self._call, self._name, self._on_error = call, name, on_error

    async def work(self) -> None:
        for index in self._indices:
            try:
                result = await self._call(self._entries[index], index)
            except asyncio.CancelledError as exc:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                result = exc  # the call was cancelled from within, not the batch
            except Exception as exc:
                result = exc
            if isinstance(result, BaseException):
                result = await self._failed(index, result)
            self.results[index] = result
            self.progress.step()

    async def _failed(self, index: int, exc: BaseException) -> Any:
        self.failures += 1
        log.warning("%s task %d/%d failed: %s: %s", self._name, index + 1, len(self._entries), type(exc).__name__, exc)
        if self._on_error == "first":
            raise exc
        if callable(self._on_error):
            outcome = self._on_error(exc)
            return await outcome if inspect.isawaitable(outcome) else outcome
        if isinstance(self._on_error, str):
            return None if self._on_error == "none" else exc
        return self._on_error


class BatchCalls(ABC):
    """Batches of whatever makes single calls: a proxy, a manager, a pool."""

    chat_completion: Callable[..., Awaitable[Any]]
    stream_chat_completion: Callable[..., AsyncGenerator[str, None]]
    embeddings: Callable[..., Awaitable[Any]]
    _default_error_process_func: Callable[[BaseException], Any] | None = None

    @property
    @abstractmethod
    def _room(self) -> int:
        """Calls that are worth having under way at once, at least 1."""

    async def batch_chat_completion(
        self,
        batch_messages: Sequence[Any],
        model: str,
        *,
        on_error: OnError = UNSET,
        progress: Any = False,
        **kwargs: Any,
    ) -> list[Any]:
        """`chat_completion` of every entry, as many at once as there is room for; results in input order.

        on_error: what becomes of a failed entry. "return" (default, where no error_process_func is set): its exception.
        "none": None. "raise": after the last entry, BatchError with all `results`. "first": the first failure cancels
        the rest and is raised. A callable ``on_error(exc)``: what it returns. Any other value but a string: that value.
        progress: True (a tqdm bar), a tqdm bar, or ``progress(done, total)``.
        """
        if on_error is UNSET:
            on_error = self._default_error_process_func or "return"

        async def call(messages: Any, _: int) -> Any:
            return await self.chat_completion(messages=messages, model=model, **kwargs)

        return await run_batch(
            sequence(batch_messages, "batch_messages"),
            call,
            name="batch_chat_completion",
            workers=self._room,
            on_error=on_error,
            progress=progress,
        )

    async def batch_stream_chat_completion(
        self,
        batch_messages: Sequence[Any],
        model: str,
        max_concurrent_streams: int = 0,
        on_stream_error: OnStreamError | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[tuple[int, str], None]:
        """``(index, piece)`` of all streams, as they arrive; *max_concurrent_streams* 0 = as many as there is room for.

        A slow consumer slows the streams down, closing the generator cancels them all. A failed stream is reported to
        ``on_stream_error(index, exc)`` at once (which may be async); without it, BatchError is raised after the last
        piece, and its `results` hold the exceptions at their places.
        """
        merged = merge_streams(
            sequence(batch_messages, "batch_messages"),
            lambda messages: self.stream_chat_completion(messages=messages, model=model, **kwargs),
            max_concurrent_streams or self._room,
            on_stream_error,
        )
        async with contextlib.aclosing(merged):
            async for item in merged:
                yield item

    async def batch_embeddings(
        self,
        *,
        batch_sentences: Sequence[Any],
        model: str | None = None,
        extra_bodies: Sequence[Any] | None = None,
        on_error: OnError = "first",
        progress: Any = False,
        **kwargs: Any,
    ) -> list[Any]:
        """`embeddings` of every entry, with the entry of *extra_bodies* at the same place; results in input order.

        The first failure is raised and cancels the rest, unless *on_error* says otherwise: "return" loses nothing. See
        `batch_chat_completion`.
        """
        entries = sequence(batch_sentences, "batch_sentences")
        if extra_bodies is not None and len(extra_bodies) != len(entries):
            raise ConfigError(f"{len(extra_bodies)} extra_bodies for {len(entries)} entries of batch_sentences")

        async def call(sentences: Any, index: int) -> Any:
            extra = {} if extra_bodies is None else {"extra_body": extra_bodies[index]}
            return await self.embeddings(sentences=sentences, model=model, **extra, **kwargs)

        return await run_batch(
            entries,
            call,
            name="batch_embeddings",
            workers=self._room,
            on_error=on_error,
            progress=progress,
        )


def sequence(entries: Any, name: str) -> Sequence[Any]:
    """The entries of a batch; ConfigError for one entry in the place of several."""
    if isinstance(entries, str | Mapping):
        raise ConfigError(f"{name} must be a sequence of entries, got {type(entries).__name__}")
    return entries if isinstance(entries, Sequence) else list(entries)


class Progress:
    """*target*: True (a tqdm bar where tqdm is installed, else log lines), a tqdm bar, or ``target(done, total)``."""

    def __init__(self, target: Any, total: int, name: str) -> None:
        self._total, self._name, self._done = total, name, 0
        self._own_bar = _tqdm(total, name) if target is True else None
        self._target = self._own_bar if target is True else target
        self._log_every = max(1, total // 10) if target is True and self._own_bar is None else 0

    def step(self) -> None:
        """One more entry is finished. What the target raises is logged: it must not cost results."""
        self._done += 1
        if self._log_every and self._done % self._log_every == 0:
            log.info("%s: %d of %d", self._name, self._done, self._total)
        target = self._target
        if target is None or target is False:
            return
        try:
            if hasattr(target, "update"):
                target.update(1)
            else:
                target(self._done, self._total)
        except Exception:
            log.exception("progress callback failed")

    def close(self) -> None:
        """Leave the terminal tidy."""
        if self._own_bar is not None:
            self._own_bar.close()


def _tqdm(total: int, name: str) -> Any:
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore] # its stubs are a package of their own
    except ImportError:
        return None
    return tqdm(total=total, desc=name, unit="call")
