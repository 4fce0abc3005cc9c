"""``POST /score`` from the first byte to the last: admission, parsing, intake, waiting, answer.

A bare ASGI application: on this path every layer costs throughput.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
import orjson

from reward_service.aggregation import Aggregation
from reward_service.errors import BadRequest, RequestError, TooLarge, Unavailable
from reward_service.gateway.parse import MSGPACK, MSGPACK_TYPES, fingerprint, identity_of, parse_body
from reward_service.gateway.service import Gateway
from reward_service.gateway.work import Job, Work
from reward_service.schemas import PROTOCOL_VERSION, ScoreItemRequest, ScoreRequest

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

log = logging.getLogger(__name__)
# Bodies up to this size are parsed on the event loop: handing them over costs more than parsing them.
INLINE_PARSE_BYTES = 128 * 1024
# Most requests are over before it pays to watch for a client that leaves.
WATCH_AFTER_S = 0.5
# Room for a body of unknown size; it doubles whenever the body turns out to be larger.
FIRST_CHUNKED_BYTES = 1 << 20
# What is read and thrown away of a body that is too large, so that the client sees the answer.
DISCARD_BYTES = 1 << 30
DISCARD_S = 10.0
_TOO_SLOW = "the body is too slow"


class ClientGone(Exception):
    """The client closed the connection: there is nobody to answer."""


class ScoreEndpoint:
    """The ASGI application behind ``POST /score``."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gateway = self._gateway
        headers = dict(scope["headers"])
        gateway.entered()
        try:
            await _Exchange(gateway, headers, receive, send, next(self._numbers)).run()
        finally:
            gateway.left()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self, gateway: Gateway, headers: dict[bytes, bytes], receive: Receive, send: Send, number: int
    ) -> None:
        self._gateway = gateway
        self._headers = headers
        self._receive = receive
        self._send = send
        self._number = number
        self._arrived = time.monotonic()
        self._budget = 0
        self._body_read = False
        self._gone = False
        self._job: Job | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._watcher: asyncio.Task[None] | None = None

    async def run(self) -> None:
        try:
            job, request = await self._begin()
            await job.done
            if self._gone:
                return
            await self._respond(200, self._answer(job, request))
        except RequestError as error:
            await self._refuse(error)
        except ClientGone:
            return
        except Exception:
            log.exception("request %d failed", self._number)
            await self._respond(500, {"detail": "internal error; the server's log has the cause"})
        finally:
            self._return_budget()
            if self._job is not None and not self._job.done.done():
                self._job.abandon()
            for timer in self._timers:
                timer.cancel()
            if self._watcher is not None:
                self._watcher.cancel()

    # ------------------------------------------------------------------ intake

    async def _begin(self) -> tuple[Job, ScoreRequest]:
        gateway = self._gateway
        if gateway.draining:
            raise Unavailable("the service is shutting down", retry_after_s=gateway.config.server.grace_period_s)
        most = gateway.config.limits.max_requests_in_flight
        if gateway.requests > most:
            raise Unavailable(f"{most} requests are in flight (limits.max_requests_in_flight)", retry_after_s=1.0)
        raw = await self._read_body()
        request = await self._parse(raw)
        del raw
        self._check_room(request)
        job = self._job = Job()
        new = self._works(job, request)
        self._arm(job, request)
        if new:
            failure = await gateway.intake.prepare(new, self._submit, job.done)
            if failure is not None and gateway.config.server.on_bad_item == "reject":
                job.abandon()
                raise BadRequest(str(failure))
            for _, item, _ in new:
                # The media is in the arena; its text is the largest thing this request holds.
                item.history.clear()
        if not gateway.multi_node:
            self._return_budget()
        return job, request

    async def _read_body(self) -> bytes:
        limit = self._gateway.config.limits.max_body_bytes
        declared = int(self._headers.get(b"content-length", b"-1") or -1)
        if declared > limit:
            raise TooLarge(f"a body of {declared} bytes; at most {limit} (limits.max_body_bytes): send it in parts")
        # A body counts twice: as it arrives, and parsed.
        wanted = 2 * (declared if declared >= 0 else min(limit, FIRST_CHUNKED_BYTES))
        timeout = self._gateway.config.server.score_timeout_s
        task = asyncio.current_task()
        assert task is not None
        late = asyncio.get_running_loop().call_later(timeout, task.cancel, _TOO_SLOW)
        try:
            await self._gateway.bodies.acquire(wanted)
            self._budget = wanted
            return await self._receive_all(limit)
        except asyncio.CancelledError as cancelled:
            if cancelled.args != (_TOO_SLOW,):
                raise
            task.uncancel()
            raise Unavailable(f"the body could not be taken in within {timeout:g} s: the server is busy") from None
        finally:
            late.cancel()

    async def _receive_all(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            part = message.get("body", b"")
            size += len(part)
            if size > limit:
                raise TooLarge(f"the body exceeds {limit} bytes (limits.max_body_bytes): send it in parts")
            if 2 * size > self._budget:
                more = min(4 * size, 2 * limit) - self._budget
                if not await self._gateway.bodies.grow(more):
                    raise Unavailable("too many bodies of undeclared size at once: send Content-Length, or try again")
                self._budget += more
            parts.append(part)
            if not message.get("more_body", False):
                self._body_read = True
                return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _parse(self, raw: bytes) -> ScoreRequest:
        kind = self._headers.get(b"content-type", b"").decode("latin-1")
        parse = functools.partial(parse_body, raw, kind, self._gateway.rules)
        if len(raw) <= INLINE_PARSE_BYTES:
            return parse()
        return await self._gateway.intake.threads.run(parse)

    def _check_room(self, request: ScoreRequest) -> None:
        counts: dict[str, int] = {}
        for item in request.requests:
            for reward in item.required_rewards:
                counts[reward] = counts.get(reward, 0) + 1
        for reward, count in counts.items():
            self._gateway.groups[reward].check_room(count)

    def _works(self, job: Job, request: ScoreRequest) -> list[tuple[int, ScoreItemRequest, Work]]:
        """Add a work per item to *job*; those that nobody has started yet are returned."""
        cache = self._gateway.idempotency
        keyed = {
            index: fingerprint(item) for index, item in enumerate(request.requests) if item.idempotency_key is not None
        }
        for index, digest in keyed.items():
            cache.find(str(request.requests[index].idempotency_key), digest)
        new: list[tuple[int, ScoreItemRequest, Work]] = []
        for index, item in enumerate(request.requests):
            key = item.idempotency_key
            work = None if key is None else cache.find(key, keyed[index])
            if work is None:
                work = Work(item.required_rewards, request.priority)
                work.label = f"{item.request_id or self._number}[{index}]"
                if key is not None:
                    cache.add(key, keyed[index], work)
                new.append((index, item, work))
            job.wait_for(work)
        job.sealed()
        return new

    def _submit(self, works: list[Work]) -> None:
        by_reward: dict[str, list[Work]] = {}
        for work in works:
            for reward in work.order:
                if reward in work.pending:
                    by_reward.setdefault(reward, []).append(work)
        for reward, group in by_reward.items():
            self._gateway.groups[reward].submit(group)

    # ------------------------------------------------------------------ waiting

    def _arm(self, job: Job, request: ScoreRequest) -> None:
        """Set the deadlines, and the watch for a client that leaves."""
        loop = asyncio.get_running_loop()
        deadlines: dict[float, set[str]] = {}
        for reward in {reward for item in request.requests for reward in item.required_rewards}:
            timeout = self._gateway.groups[reward].timeout_s
            if request.deadline_s is not None:
                timeout = min(timeout, request.deadline_s)
            deadlines.setdefault(timeout, set()).add(reward)
        past = time.monotonic() - self._arrived
        for timeout, rewards in deadlines.items():
            self._timers.append(loop.call_later(timeout - past, job.expire, rewards, overrun(timeout)))
        self._timers.append(loop.call_later(WATCH_AFTER_S, self._watch, job))

    def _watch(self, job: Job) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._await_disconnect(job))

    async def _await_disconnect(self, job: Job) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            if not job.done.done():
                self._gone = True
                job.abandon()

    # ------------------------------------------------------------------ answer

    def _answer(self, job: Job, request: ScoreRequest) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        errors: list[dict[str, str]] = []
        for work in job.works:
            results.append(in_order(work.results, work.order))
            errors.append(job.errors_of(work))
        answer: dict[str, Any] = {
            "results": results,
            "errors": errors,
            "identities": [identity_of(item) for item in request.requests],
            "protocol_version": PROTOCOL_VERSION,
        }
        if request.aggregation is not None:
            how = Aggregation(**request.aggregation.model_dump())
            answer["aggregated"] = [
                how.aggregate(result, item.required_rewards)
                for result, item in zip(results, request.requests, strict=True)
            ]
        return answer

    async def _refuse(self, error: RequestError) -> None:
        headers = []
        if error.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
        self._return_budget()
        if not self._body_read:
            headers.append((b"connection", b"close"))
        await self._respond(error.status, {"detail": str(error)}, headers)

    async def _discard(self) -> None:
        """Read what is left of the body, within bounds.

        Closing a connection on which bytes arrive unread resets it, and the client may lose the answer.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_S):
                size = 0
                while size < DISCARD_BYTES:
                    message = await self._receive()
                    size += len(message.get("body", b""))
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return

    async def _respond(
        self, status: int, content: dict[str, Any], headers: list[tuple[bytes, bytes]] | None = None
    ) -> None:
        if self._wants_msgpack():
            body, kind = msgspec.msgpack.encode(content), MSGPACK.encode()
        else:
            body, kind = orjson.dumps(content), b"application/json"
        start = {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", kind), (b"content-length", str(len(body)).encode()), *(headers or ()),
            ],
        }  # fmt: skip
        self._gateway.metrics.answered(status, time.monotonic() - self._arrived)
        with contextlib.suppress(OSError):
            await self._send(start)
            if not self._body_read:
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
                await self._discard()
                body = b""
            await self._send({"type": "http.response.body", "body": body})

    def _wants_msgpack(self) -> bool:
        accept = self._headers.get(b"accept")
        return accept is not None and any(
            part.partition(";")[0].strip() in MSGPACK_TYPES for part in accept.decode("latin-1").lower().split(",")
        )

    def _return_budget(self) -> None:
        if self._budget:
            self._gateway.bodies.release(self._budget)
            self._budget = 0


def overrun(timeout_s: float) -> Callable[[str], str]:
    """The sentence for a reward that was not answered within *timeout_s*."""
    return lambda reward: f"reward {reward!r} exceeded {timeout_s:.1f}s"


def in_order(results: dict[str, Any], order: tuple[str, ...]) -> dict[str, Any]:
    """*results* in the order the rewards were asked for."""
    if len(results) < 2:
        return results
    return {reward: results[reward] for reward in order if reward in results}
