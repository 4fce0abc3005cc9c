"""One HTTP exchange, with retries, pauses and failover between base URLs."""

from __future__ import annotations

import asyncio
import io
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from reward_service import __version__
from reward_service.client.endpoints import Endpoint, Endpoints
from reward_service.client.errors import InvalidAnswer, RequestRefused, ServiceUnavailable
from reward_service.client.retry import RETRIED_STATUSES, backoff, retry_after
from reward_service.client.settings import Settings
from reward_service.client.wire import CallOptions, decode

# A host that drops packets would otherwise eat the whole timeout before another URL is tried.
_CONNECT_TIMEOUT_S = 10.0
# uvicorn closes idle connections after 5 s by default; older ones are not worth the race.
_KEEPALIVE_S = 30.0
# The server ends a call at its deadline and says so; this is the time for its answer to arrive.
_DEADLINE_GRACE_S = 5.0
_MESSAGE_CHARS = 1000


@dataclass(frozen=True)
class Reply:
    """A 200."""

    body: bytes
    content_type: str


@dataclass(frozen=True)
class Outgoing:
    """A request before it is addressed; `body` gets the seconds left of the deadline, per attempt."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Callable[[float | None], bytes] | None = None
    items: int = 1
    options: CallOptions = field(default_factory=CallOptions)


class _Failed(Exception):
    """An attempt that another one may cure."""

    def __init__(self, reason: str, cause: BaseException | None, asked_s: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.cause = cause
        self.asked_s = asked_s


class Courier:
    """Sends the requests of one client; lives in one event loop. *sleep* and *roll* pause and dice."""

    def __init__(
        self,
        settings: Settings,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._settings = settings
        self._endpoints = Endpoints(settings.urls)
        self._sleep = sleep
        self._roll = roll
        self._session: aiohttp.ClientSession | None = None
        # Waiting for a connection must not count against the timeout of a request, so aiohttp's pool is
        # unbounded and this bounds it.
        self._slots = asyncio.Semaphore(settings.max_connections)

    async def send(self, outgoing: Outgoing) -> Reply:
        """Deliver *outgoing*, trying again and elsewhere.

        Raises RequestRefused for a status that no retry cures, ServiceUnavailable when retries or the
        deadline are used up.
        """
        seen: Counter[tuple[str, str]] = Counter()
        failure: _Failed | None = None
        avoid: Endpoint | None = None
        for attempt in range(self._settings.max_retries + 1):
            if failure is not None and not await self._pause(attempt, avoid, outgoing.options.ends_at):
                break
            endpoint = self._endpoints.pick(_now(), avoid)
            try:
                return await self._attempt(endpoint, outgoing, self._settings.timeout)
            except _Failed as failed:
                failure, avoid = failed, endpoint
                seen[endpoint.label, failed.reason] += 1
        raise _unavailable(seen, outgoing) from (failure.cause if failure else None)

    async def ask_once(self, outgoing: Outgoing, timeout_s: float) -> Reply:
        """Deliver *outgoing* to the first URL that answers: each is asked once, without pauses."""
        seen: Counter[tuple[str, str]] = Counter()
        avoid: Endpoint | None = None
        cause: BaseException | None = None
        for _ in range(len(self._endpoints)):
            endpoint = self._endpoints.pick(_now(), avoid)
            try:
                return await self._attempt(endpoint, outgoing, timeout_s)
            except _Failed as failed:
                avoid, cause = endpoint, failed.cause
                seen[endpoint.label, failed.reason] += 1
        raise _unavailable(seen, outgoing) from cause

    async def _pause(self, attempt: int, avoid: Endpoint | None, ends_at: float | None) -> bool:
        """Wait before retry *attempt*; False when the deadline leaves no time for it."""
        now = _now()
        following = self._endpoints.pick(now, avoid)
        if following is not avoid and not following.resting(now):
            pause = 0.0
        elif following.asked_until is not None:
            pause = max(following.asked_until - now, 0.0)
        else:
            pause = backoff(attempt, self._settings.retry_delay, self._roll())
        if ends_at is not None and now + pause >= ends_at:
            return False
        if pause > 0:
            await self._sleep(pause)
        return True

    async def _attempt(self, endpoint: Endpoint, outgoing: Outgoing, timeout_s: float | None) -> Reply:
        async with self._slots:
            began = _now()
            self._endpoints.started(endpoint, outgoing.items)
            try:
                reply = await self._exchange(endpoint, outgoing, timeout_s)
            except _Failed as failed:
                self._endpoints.failed(endpoint, began, _now(), failed.asked_s)
                raise
            finally:
                self._endpoints.finished(endpoint, outgoing.items)
            self._endpoints.succeeded(endpoint)
            return reply

    async def _exchange(self, endpoint: Endpoint, outgoing: Outgoing, timeout_s: float | None) -> Reply:
        remaining = outgoing.options.remaining_s(_now())
        if remaining is not None and timeout_s is not None:
            timeout_s = min(timeout_s, remaining + _DEADLINE_GRACE_S)
        # From a BytesIO, aiohttp writes a large body in pieces and lets other requests run in between.
        data = None if outgoing.body is None else io.BytesIO(outgoing.body(remaining))
        try:
            async with self._open_session().request(
                outgoing.method,
                endpoint.url + outgoing.path,
                data=data,
                headers=outgoing.headers,
                timeout=aiohttp.ClientTimeout(total=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except TimeoutError as error:
            raise _Failed(_timeout_reason(error, timeout_s), error) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _Failed(_reason(error), error) from error
        if response.status == 200:
            return Reply(body, response.content_type)
        refusal = RequestRefused(response.status, _message(response, body), endpoint.label)
        if response.status in RETRIED_STATUSES:
            asked = retry_after(response.headers.get("Retry-After"), datetime.now(UTC))
            raise _Failed(f"HTTP {response.status}: {refusal.message}", refusal, asked)
        raise refusal

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=self._settings.trust_env,
                headers={
                    "User-Agent": f"reward-service-client/{__version__}",
                    **(self._settings.headers or {}),
                },
            )
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _unavailable(seen: Counter[tuple[str, str]], outgoing: Outgoing) -> ServiceUnavailable:
    per_url: dict[str, str] = {}
    for (label, reason), times in seen.items():
        line = reason if times == 1 else f"{reason} ({times} times)"
        per_url[label] = f"{per_url[label]}, {line}" if label in per_url else line
    tries = sum(seen.values())
    story = "; ".join(f"{label}: {line}" for label, line in per_url.items())
    message = (
        f"{outgoing.method} {outgoing.path} failed {tries} time{'s' * (tries != 1)}: {story}. "
        "Check that the service runs and that its URL is right"
    )
    return ServiceUnavailable(message, per_url)


def _timeout_reason(error: TimeoutError, timeout_s: float | None) -> str:
    # aiohttp's two connect timeouts are subclasses of ClientError; a total timeout is not.
    if isinstance(error, aiohttp.ClientError):
        return f"no connection within {_CONNECT_TIMEOUT_S:g} s"
    return f"no answer within {timeout_s:g} s" if timeout_s is not None else "no answer in time"


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        return f"cannot connect: {os.strerror(number) if number and number > 0 else error.os_error}"
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message(response: aiohttp.ClientResponse, body: bytes) -> str:
    """What the server says about its refusal: the ``detail`` of a structured body, or the text itself."""
    try:
        detail = decode(body, response.content_type)["detail"]
    except (InvalidAnswer, KeyError, TypeError, IndexError):
        detail = body.decode("utf-8", "replace").strip()
    if isinstance(detail, list):
        detail = "; ".join(_problem(entry) for entry in detail)
    message = str(detail)[:_MESSAGE_CHARS] or response.reason or "no explanation"
    if 300 <= response.status < 400:
        return f"a redirect to {response.headers.get('Location', 'nowhere')}; give that as base_url"
    return message


def _problem(entry: object) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    place = ".".join(str(part) for part in entry.get("loc", ()))
    return f"{place}: {entry.get('msg', entry)}"
