"""Hedging for streams: contenders race for their first item, the winner is read to its end.

Every contender's generator lives in one task of its own from its first step to its last, because a generator may
hold scopes (timeouts, task groups) that belong to the task that opened them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from qreward.events import Call, Observer
from qreward.policy.hedge import HedgePolicy
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.race import LOOK_AGAIN_S
from qreward.runtime.source import Source

T = TypeVar("T")


class _Contender(Generic[T]):
    """A source that is read by its own task, one item ahead."""

    def __init__(self, source: Source[T]) -> None:
        self.source = source
        self._items: asyncio.Queue[tuple[bool, T | BaseException]] = asyncio.Queue(1)
        self._task = asyncio.create_task(self._read())
        self.first = asyncio.create_task(self._take())
        self._peeked = False

    async def _read(self) -> None:
        try:
            while True:
                try:
                    item = await self.source.next()
                except asyncio.CancelledError:
                    raise
                except BaseException as exc:
                    if isinstance(exc, StopAsyncIteration):
                        self.source.succeeded()
                    else:
                        self.source.failed(exc)
                    await self._items.put((False, exc))
                    return
                await self._items.put((True, item))
        finally:
            await self.source.close()

    async def _take(self) -> tuple[bool, T | BaseException]:
        return await self._items.get()

    async def next(self) -> T:
        if self._peeked:
            ok, value = await self._take()
        else:
            self._peeked = True
            ok, value = await self.first
        if ok:
            return value  # type: ignore[return-value]
        raise value  # type: ignore[misc]

    async def close(self) -> None:
        self.first.cancel()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.gather(self.first, self._task, return_exceptions=True)
        await self.source.close()  # a task cancelled before its first step has not done it


class StreamRace(Generic[T]):
    """Looks like a `Source`; settles the permits of all its contenders."""

    def __init__(
        self,
        policy: HedgePolicy,
        opened: Callable[[], AsyncIterator[T]],
        gate: Gate,
        permit: Permit,
        call: Call,
        observer: Observer | None,
    ) -> None:
        self._policy, self._opened, self._gate, self._call, self._observer = policy, opened, gate, call, observer
        self._first_source: Source[T] | None = Source(opened, gate, permit, call, observer)
        self._contenders: list[_Contender[T]] = []
        self._winner: _Contender[T] | None = None

    async def next(self) -> T:
        if self._winner is None:
            self._winner = await self._race()
        return await self._winner.next()

    async def _race(self) -> _Contender[T]:
        if self._first_source is not None:
            self._contenders.append(_Contender(self._first_source))
            self._first_source = None
        running = list(self._contenders)
        delay = None
        while True:
            more = len(self._contenders) <= self._policy.max_hedges and len(running) == len(self._contenders)
            delay = delay or self._gate.hedge_delay(self._policy)
            timeout = (LOOK_AGAIN_S if delay is None else delay) if more else None
            done, _ = await asyncio.wait(
                [c.first for c in running], timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                running.extend(self._launch() if delay is not None else [])
                continue
            for contender in [c for c in running if c.first in done]:
                ok, value = contender.first.result()
                if ok or isinstance(value, StopAsyncIteration) or len(running) == 1:
                    await self._dismiss(contender)
                    return contender
                running.remove(contender)

    def _launch(self) -> list[_Contender[T]]:
        permit = self._gate.try_hedge()
        if permit is None:
            return []
        self._call.hedges += 1
        contender = _Contender(Source(self._opened, self._gate, permit, self._call, self._observer, hedge=True))
        self._contenders.append(contender)
        return [contender]

    async def _dismiss(self, winner: _Contender[T]) -> None:
        for contender in self._contenders:
            if contender is not winner:
                await contender.close()
        self._contenders = [winner]

    def succeeded(self) -> None:
        if self._winner is not None:
            self._winner.source.succeeded()

    def failed(self, exc: BaseException) -> None:
        for contender in self._contenders:
            contender.source.failed(exc)

    async def close(self) -> None:
        if self._first_source is not None:
            await self._first_source.close()
        for contender in self._contenders:
            await contender.close()
