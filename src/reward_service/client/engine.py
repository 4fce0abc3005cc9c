"""The one implementation behind both clients: encode, cut, send, join. Lives in the portal's loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

from reward_service.client.answer import ScoreResponse, fill_aggregated, joined, read_answer
from reward_service.client.chunking import split
from reward_service.client.coalesce import Coalescer
from reward_service.client.courier import Courier, Outgoing, Reply
from reward_service.client.errors import ClientClosed, InvalidAnswer, ItemTooLarge, PostError, RequestRefused
from reward_service.client.media import Encoder, Media
from reward_service.client.portal import Portal
from reward_service.client.request import CheckedRequest
from reward_service.client.settings import Settings
from reward_service.client.wire import JSON, CallOptions, Item, codec_for, decode, room_for_items

T = TypeVar("T")
# Requests of one call that are on their way at once: enough to hide latency, and to use every URL.
_CONCURRENT_CHUNKS = 8
_CHUNKS_PER_URL = 2
_HEALTH_TIMEOUT_S = 10.0


class Engine:
    """What a client owns in this process: connections, encoder threads, learned limits."""

    def __init__(self, settings: Settings, portal: Portal) -> None:
        self.portal = portal
        self._settings = settings
        self._codec = codec_for(settings.body_format)
        self._encoder = Encoder(settings.image_format, settings.image_quality)
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="reward-encode")
        self._courier = Courier(settings)
        self._max_items = settings.max_items_per_request
        self._coalescer = Coalescer(self._deliver, settings.coalesce_s, self._fits) if settings.coalesce_s else None
        self._calls: set[asyncio.Task[Any]] = set()
        self._closed = False
        portal.resources.add(self)

    def start(self, work: Callable[[], Awaitable[T]]) -> Future[T]:
        """Run ``work()`` in the loop on behalf of a caller in any thread."""
        return self.portal.submit(partial(self._guarded, work))

    async def score(self, requests: Sequence[CheckedRequest], options: CallOptions) -> ScoreResponse:
        """Score *requests*; see `RewardClient.score_detailed`."""
        if not requests:
            return ScoreResponse([], [], aggregated=[] if options.aggregation else None)
        if options.deadline_s is not None:
            options = replace(options, ends_at=asyncio.get_running_loop().time() + options.deadline_s)
        items = await self._encode(requests)
        deliver = self._coalescer.submit if self._coalescer else self._deliver
        answer = await deliver(items, options)
        fill_aggregated(answer, items, options.aggregation)
        return answer

    async def health(self) -> dict[str, Any]:
        """``GET /health`` of the first URL that answers."""
        timeout = min(self._settings.timeout or _HEALTH_TIMEOUT_S, _HEALTH_TIMEOUT_S)
        return _object(await self._courier.ask_once(Outgoing("GET", "/health", {"Accept": JSON}), timeout))

    async def rewards(self) -> list[str]:
        """``GET /rewards``."""
        payload = _object(await self._courier.send(Outgoing("GET", "/rewards", {"Accept": JSON})))
        names = payload.get("rewards")
        if not isinstance(names, list):
            raise InvalidAnswer("the answer to GET /rewards has no list of rewards; is this a reward service?")
        return [str(name) for name in names]

    async def aclose(self) -> None:
        """End the calls that run with ClientClosed, then free everything."""
        if self._closed:
            return
        self._closed = True
        for task in self._calls:
            task.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._courier.aclose()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.portal.resources.discard(self)

    async def _guarded(self, work: Callable[[], Awaitable[T]]) -> T:
        closed = "the client is closed; make a new one"
        if self._closed:
            raise ClientClosed(closed)
        task = asyncio.current_task()
        assert task is not None
        self._calls.add(task)
        try:
            return await work()
        except asyncio.CancelledError:
            if self._closed:
                raise ClientClosed(closed) from None
            raise
        finally:
            self._calls.discard(task)

    async def _encode(self, requests: Sequence[CheckedRequest]) -> list[Item]:
        loop = asyncio.get_running_loop()
        media = list(dict.fromkeys(m for request in requests for turn in request.turns for m in turn.media))
        values = await _together(loop.run_in_executor(self._pool, self._encode_one, m) for m in media)
        encoded = dict(zip(media, values, strict=True))
        return await loop.run_in_executor(
            self._pool, lambda: [self._codec.item(request, encoded) for request in requests]
        )

    def _encode_one(self, media: Media) -> Any:
        return self._codec.media(self._encoder.encode(media))

    def _room(self, options: CallOptions) -> int:
        return room_for_items(self._codec, options, self._settings.max_body_bytes)

    def _ranges(self, items: Sequence[Item], options: CallOptions) -> list[range]:
        return split([len(item.data) + 1 for item in items], self._max_items, self._room(options))

    def _fits(self, items: Sequence[Item], options: CallOptions) -> bool:
        return len(self._ranges(items, options)) == 1

    async def _deliver(self, items: Sequence[Item], options: CallOptions) -> ScoreResponse:
        """Send *items* in as many requests as the limits ask for; the first failure ends the others."""
        room = self._room(options)
        for item in items:
            if len(item.data) + 1 > room:
                raise _too_large(item, f"max_body_bytes={self._settings.max_body_bytes}")
        return await self._send_within(items, options)

    async def _send_within(self, items: Sequence[Item], options: CallOptions) -> ScoreResponse:
        ranges = self._ranges(items, options)
        if len(ranges) == 1:
            return await self._send(items, options)
        slots = asyncio.Semaphore(max(_CONCURRENT_CHUNKS, _CHUNKS_PER_URL * len(self._settings.urls)))

        async def send_range(chunk: Sequence[Item]) -> ScoreResponse:
            async with slots:
                return await self._send_named(chunk, options)

        return joined(await _together(send_range(items[r.start : r.stop]) for r in ranges))

    async def _send_named(self, items: Sequence[Item], options: CallOptions) -> ScoreResponse:
        try:
            return await self._send(items, options)
        except PostError as error:
            if error.items:
                raise
            raise error.for_items([item.index for item in items]) from error.__cause__

    async def _send(self, items: Sequence[Item], options: CallOptions) -> ScoreResponse:
        """One POST; the halves when the server finds it too large."""
        if self._max_items is not None and len(items) > self._max_items:
            # Another request has learned a smaller limit since this one was cut.
            return await self._send_within(items, options)
        try:
            reply = await self._courier.send(self._post(items, options))
        except RequestRefused as error:
            if error.status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
                raise
            if len(items) == 1:
                raise _too_large(items[0], f"the server says: {error.message}") from error
        else:
            return read_answer(decode(reply.body, reply.content_type), items)
        middle = (len(items) + 1) // 2
        halves = [await self._send_named(half, options) for half in (items[:middle], items[middle:])]
        # Learned only now: one giant among small ones must not make every later request small.
        self._max_items = min(middle, self._max_items or middle)
        return joined(halves)

    def _post(self, items: Sequence[Item], options: CallOptions) -> Outgoing:
        codec = self._codec
        return Outgoing(
            "POST",
            "/score",
            {"Content-Type": codec.content_type, "Accept": codec.accept},
            lambda remaining_s: codec.body(items, options.fields(remaining_s)),
            len(items),
            options,
        )


def _too_large(item: Item, limit: str) -> ItemTooLarge:
    error = ItemTooLarge(413, f"{len(item.data):,} bytes encoded are too large ({limit}); send a smaller image")
    error.items = (item.index,)
    return error


def _object(reply: Reply) -> dict[str, Any]:
    payload = decode(reply.body, reply.content_type)
    if not isinstance(payload, dict):
        raise InvalidAnswer(f"the answer is a {type(payload).__name__}, not an object; is this a reward service?")
    return payload


async def _together(work: Iterable[Awaitable[T]]) -> list[T]:
    """Await all; the first failure cancels the rest and is raised once they have ended."""
    futures = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*futures)
    except BaseException:
        for future in futures:
            future.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*futures, return_exceptions=True)
        raise
