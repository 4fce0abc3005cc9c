"""Merging concurrent calls into one POST: frameworks that score one sample at a time get batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from reward_service.client.answer import ScoreResponse
from reward_service.client.errors import PostError, RequestRefused
from reward_service.client.wire import CallOptions, Item

Deliver = Callable[[Sequence[Item], CallOptions], Awaitable[ScoreResponse]]
Fits = Callable[[Sequence[Item], CallOptions], bool]


@dataclass(eq=False)
class _Call:
    items: Sequence[Item]
    waiter: asyncio.Future[ScoreResponse]


@dataclass(eq=False)
class _Group:
    options: CallOptions
    timer: asyncio.TimerHandle | None = None
    calls: list[_Call] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def items(self) -> list[Item]:
        return [item for call in self.calls for item in call.items]


class Coalescer:
    """Collects the calls of *linger_s* that have equal options, as long as *fits* accepts them together.

    A refused POST is sent again call by call, so that one caller's bad item does not cost the others their
    scores. Every other failure reaches each caller as its own exception.
    """

    def __init__(self, deliver: Deliver, linger_s: float, fits: Fits) -> None:
        self._deliver = deliver
        self._linger_s = linger_s
        self._fits = fits
        self._open: dict[bytes, _Group] = {}
        self._sent: set[_Group] = set()

    async def submit(self, items: Sequence[Item], options: CallOptions) -> ScoreResponse:
        """Deliver *items* together with others; a cancelled caller leaves its group alone."""
        if not self._fits(items, options):
            return await self._deliver(items, options)
        key = options.key
        group = self._open.get(key)
        if group is not None and not self._fits([*group.items, *items], options):
            self._flush(key, group)
            group = None
        loop = asyncio.get_running_loop()
        if group is None:
            group = self._open[key] = _Group(options)
            group.timer = loop.call_later(self._linger_s, self._flush, key, group)
        call = _Call(items, loop.create_future())
        group.calls.append(call)
        if not self._fits([*group.items, items[-1]], options):
            # Another one like this would not fit: waiting longer gains nothing.
            self._flush(key, group)
        try:
            return await call.waiter
        finally:
            if call.waiter.cancelled():
                self._leave(key, group, call)

    def _flush(self, key: bytes, group: _Group) -> None:
        if group.timer is not None:
            group.timer.cancel()
        if self._open.get(key) is group:
            del self._open[key]
        if group.calls:
            self._sent.add(group)
            group.task = asyncio.create_task(self._send(group))
            group.task.add_done_callback(lambda _: self._sent.discard(group))

    def _leave(self, key: bytes, group: _Group, call: _Call) -> None:
        if group.task is None:
            group.calls.remove(call)
            if not group.calls:
                self._flush(key, group)
        elif all(other.waiter.cancelled() for other in group.calls):
            group.task.cancel()

    async def _send(self, group: _Group) -> None:
        try:
            answer = await self._deliver(group.items, group.options)
        except RequestRefused as error:
            if len(group.calls) == 1:
                _fail(group.calls, error)
            else:
                await asyncio.gather(*(self._send_alone(call, group.options) for call in group.calls))
        except Exception as error:
            _fail(group.calls, error)
        except asyncio.CancelledError:
            for call in group.calls:
                call.waiter.cancel()
            raise
        else:
            start = 0
            for call in group.calls:
                stop = start + len(call.items)
                if not call.waiter.done():
                    call.waiter.set_result(answer.part(start, stop))
                start = stop

    async def _send_alone(self, call: _Call, options: CallOptions) -> None:
        if call.waiter.done():
            return
        try:
            answer = await self._deliver(call.items, options)
        except Exception as error:
            _fail([call], error)
        else:
            if not call.waiter.done():
                call.waiter.set_result(answer)


def _fail(calls: Sequence[_Call], error: Exception) -> None:
    """Give each caller its own exception: its item numbers are not those of the merged POST."""
    for call in calls:
        if not call.waiter.done():
            own = error.for_items(()) if isinstance(error, PostError) and len(calls) > 1 else error
            call.waiter.set_exception(own)
