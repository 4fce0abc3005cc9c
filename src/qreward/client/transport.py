"""The bytes: one aiohttp session per event loop, opened at the first request and closed with the loop or its owner.

CPU per call of a client with 64 callers and one loopback server: aiohttp as one usually calls it 190 to 220 µs, with
prebuilt URL and headers 170 to 210, a bare asyncio protocol with a toy parser 65 to 80, httpx 7,900 (its pool is
searched for every waiting request). What the bare protocol lacks (TLS, proxies, chunked and compressed bodies,
redirects, Happy Eyeballs) is worth more than 0.1 ms where a model takes many.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from qreward.client.sockets import aiohttp_keepalive_socket_factory
from qreward.client.tls import Verify, tls_context
from qreward.runtime.fork import renew_after_fork

_CHUNK_BYTES = 2**18  # how much of a response is buffered before the sender is slowed down


class ResponseTooLarge(Exception):
    """The body of a response exceeds what the client accepts."""


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """verify: see `tls_context`. plain: the server is reached without TLS. proxy: URL of an HTTP proxy.

    connect_timeout_s: for one connection, TLS included. keepalive_s: how long an idle connection is kept.
    """

    verify: Verify = True
    plain: bool = False
    proxy: str | None = None
    connect_timeout_s: float = 10.0
    keepalive_s: float = 15.0
    max_response_bytes: int = 256 * 2**20


@dataclass(slots=True, eq=False)
class Reply:
    """A complete response."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    url: URL


class _Connector(aiohttp.TCPConnector):
    """Closed by its guard; says nothing when its loop was closed before it."""

    def __del__(self, *_: object) -> None:
        pass


@dataclass(slots=True, eq=False)
class _Held:
    loop: asyncio.AbstractEventLoop
    session: aiohttp.ClientSession
    guard: AsyncGenerator[None, None]


class Transport:
    """HTTP/1.1 with keep-alive; usable from any number of event loops and threads at once.

    Raises aiohttp's exceptions. Has no time limit of its own but for connecting: callers bound their attempts. How many
    requests run at once is up to the callers too; connections are kept for as many as did.
    """

    def __init__(self, settings: TransportSettings | None = None) -> None:
        self.settings = settings or TransportSettings()
        self._lock = threading.Lock()
        self._held: list[_Held] = []
        self._last: _Held | None = None
        weakref.finalize(self, _abandon_all, self._held)
        renew_after_fork(self)

    async def post(self, url: URL, headers: CIMultiDict[str], body: bytes) -> Reply:
        """Send *body* and read the whole response."""
        response = await self._session().post(url, data=body, headers=headers)
        length = response.content_length
        limit = self.settings.max_response_bytes
        if length is not None and length <= limit and "Content-Encoding" not in response.headers:
            data = await response.read()
        else:
            data = await _read_bounded(response, limit)
        return Reply(response.status, response.headers, data, response.url)

    async def open(
        self, url: URL, headers: CIMultiDict[str], body: bytes, method: str = "POST"
    ) -> aiohttp.ClientResponse:
        """Send *body* and return the response before its body is read; the caller closes or releases it."""
        return await self._session().request(method, url, data=body or None, headers=headers)

    async def read(self, response: aiohttp.ClientResponse) -> Reply:
        """The rest of an opened response."""
        data = await _read_bounded(response, self.settings.max_response_bytes)
        return Reply(response.status, response.headers, data, response.url)

    # -- sessions --------------------------------------------------------------------------------------------------

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        last = self._last
        if last is not None and last.loop is loop and not last.session.closed:
            return last.session
        with self._lock:
            for held in list(self._held):
                if held.loop.is_closed() or held.session.closed:
                    self._held.remove(held)
                    _abandon(held)
                elif held.loop is loop:
                    self._last = held
                    return held.session
            self._last = held = self._open(loop)
            self._held.append(held)
        return held.session

    def _open(self, loop: asyncio.AbstractEventLoop) -> _Held:
        settings = self.settings
        connector = _Connector(
            limit=0,
            ttl_dns_cache=300,
            keepalive_timeout=settings.keepalive_s,
            socket_factory=aiohttp_keepalive_socket_factory,
            # Reading the system's certificates takes 20 ms; without TLS they matter to redirects only, for which those
            # that aiohttp has read will do.
            ssl=True if settings.plain and settings.verify is True else tls_context(settings.verify),
        )
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=settings.connect_timeout_s),
            proxy=settings.proxy,
            read_bufsize=_CHUNK_BYTES,
        )
        guard = _guard(session, connector)
        with contextlib.suppress(StopIteration):  # step to the yield, which needs nothing from the loop
            guard.__anext__().send(None)
        return _Held(loop, session, guard)

    async def aclose(self) -> None:
        """Close every connection. Another request opens a new session."""
        with self._lock:
            held, self._held[:] = list(self._held), []
            self._last = None
        here = asyncio.get_running_loop()
        for one in held:
            if one.loop is here:
                await one.guard.aclose()
            else:
                _abandon(one)

    def after_fork(self) -> None:
        """In a forked child: the sockets belong to the parent. They stay referenced, because closing them here would
        unregister them from the selector that both processes share."""
        self._lock = threading.Lock()
        _inherited.extend(self._held)
        self._held.clear()
        self._last = None


async def _guard(session: aiohttp.ClientSession, connector: _Connector) -> AsyncGenerator[None, None]:
    """Closes the session when the loop shuts its asynchronous generators down, as `asyncio.run` does at its end."""
    try:
        yield
    finally:
        session.detach()
        await connector.close()


def _abandon(held: _Held) -> None:
    """Close a session from outside its loop."""
    if not held.loop.is_running():
        held.session.detach()  # it would complain when it is collected, and its loop may never run again
    with contextlib.suppress(RuntimeError):  # the loop is closed, and its connections with it
        held.loop.call_soon_threadsafe(_close_in_loop, held)


def _close_in_loop(held: _Held) -> None:
    task = held.loop.create_task(_finish(held.guard))
    _closing.add(task)
    task.add_done_callback(_closing.discard)


async def _finish(guard: AsyncGenerator[None, None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closing it at this moment
        await guard.aclose()


def _abandon_all(held: list[_Held]) -> None:
    while held:
        _abandon(held.pop())


async def _read_bounded(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The body, decompressed; ResponseTooLarge when it is longer than *limit* bytes."""
    pieces, size = [], 0
    try:
        while piece := await response.content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                raise ResponseTooLarge(f"the response is larger than {limit} bytes")
    except BaseException:
        response.close()
        raise
    response.release()
    return b"".join(pieces)


_inherited: list[_Held] = []
_closing: set[asyncio.Task[None]] = set()
