"""One attempt at a request: endpoint, transport and hooks put together; failures leave as openai's exceptions."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from qreward.client.endpoint import Endpoint
from qreward.client.errors import (
    TRANSPORT_ERRORS,
    httpx_of_openai,
    httpx_response,
    invalid_answer,
    status_error,
    stream_error,
    timeout_error,
    transport_error,
)
from qreward.client.httpx_bridge import aiohttp_headers
from qreward.client.request import Request
from qreward.client.sse import Event, EventParser
from qreward.client.transport import Reply, Transport

T = TypeVar("T")
Hook = Callable[[Any], Any]

DONE = b"[DONE]"
_DRAIN_S = 0.5  # how long the end of a stream is waited for, so that its connection can be used again


class Wire:
    """Sends requests to one endpoint, once each. No retries, no limits; safe to use from several loops at once."""

    def __init__(
        self,
        endpoint: Endpoint,
        transport: Transport,
        request_hook: Hook | None = None,
        response_hook: Hook | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.transport = transport
        self.request_hook = request_hook
        self.response_hook = response_hook
        self._hooked = request_hook is not None or response_hook is not None
        self._attempts: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}
        self._interrupted: weakref.WeakSet[asyncio.Timeout] = weakref.WeakSet()

    async def send(self, request: Request, parse: Callable[[Reply], T]) -> T:
        """*parse* applied to the response.

        Raises openai.APIStatusError, APITimeoutError after request.timeout_s, APIConnectionError, or
        APIResponseValidationError.
        """
        url, headers = self._address(request)
        reply = await self._bounded(self._exchange(request, url, headers), request, url)
        if not 200 <= reply.status < 300:
            raise status_error(reply, self.endpoint.api_key)
        return parse(reply)

    def interrupt(self) -> int:
        """End every attempt in flight with an APIConnectionError, so that it can go on elsewhere; their number."""
        attempts = self._attempts.copy()
        for scope, loop in attempts.items():
            with contextlib.suppress(RuntimeError):  # that loop is closed
                loop.call_soon_threadsafe(self._expire, scope, loop)
        return len(attempts)

    def _expire(self, scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
        if scope in self._attempts and not scope.expired():
            self._interrupted.add(scope)
            with contextlib.suppress(RuntimeError):  # its time is up at this moment
                scope.reschedule(loop.time())

    def _address(self, request: Request) -> tuple[URL, CIMultiDict[str]]:
        endpoint = self.endpoint
        url = endpoint.url(request.path, request.extra_query)
        return url, endpoint.merged_headers(request.extra_headers)

    def _failure(self, exc: Exception, scope: asyncio.Timeout, request: Request, url: URL) -> Exception:
        if not isinstance(exc, TimeoutError) or not scope.expired():
            return transport_error(exc, url)
        if scope in self._interrupted:
            return transport_error(aiohttp.ClientConnectionError("given up: the endpoint does not answer"), url)
        return timeout_error(url, f"Request timed out: no answer from {url.host} within {request.timeout_s} s.")

    async def _exchange(self, request: Request, url: URL, headers: CIMultiDict[str]) -> Reply:
        if not self._hooked:
            return await self.transport.post(url, headers, request.data)
        sent = await self._hooked_request(request, url, headers)
        reply = await self.transport.post(URL(str(sent.url)), aiohttp_headers(sent), sent.content)
        if self.response_hook is not None:
            await _call(self.response_hook, httpx_response(reply, sent))
        return reply

    async def _hooked_request(self, request: Request, url: URL, headers: CIMultiDict[str]) -> Any:
        sent = httpx_of_openai().Request("POST", str(url), headers=list(headers.items()), content=request.data)
        if self.request_hook is not None:
            await _call(self.request_hook, sent)
        return sent

    # -- streams -----------------------------------------------------------------------------------------------------

    async def events(self, request: Request) -> AsyncGenerator[bytes, None]:
        """The data of the events of a stream; the last is ``[DONE]`` where the server sends it.

        Closing the generator early closes the connection, which tells the server to stop. request.timeout_s bounds the
        silence before each piece. Raises like `send`, and openai.APIError for an error that arrives as an event.
        """
        url, headers = self._address(request)
        response: aiohttp.ClientResponse = await self._bounded(self._open(request, url, headers), request, url)
        try:
            if response.content_type == "application/json":  # the server does not stream
                yield (await self._bounded(self.transport.read(response), request, url)).body
                yield DONE
                return
            parser = EventParser()
            while chunk := await self._bounded(response.content.readany(), request, url):
                for event in parser.feed(chunk):
                    if event.data == DONE:
                        await _drain(response)
                    yield self._checked(event, response)
                    if event.data == DONE:
                        return
            for event in parser.finish():
                yield self._checked(event, response)
        except ValueError as exc:  # of the parser
            raise invalid_answer(_head(response), str(exc)) from exc
        finally:
            response.close()  # does nothing to a connection that was released

    def _checked(self, event: Event, response: aiohttp.ClientResponse) -> bytes:
        if event.type == "error" or event.data.startswith((b'{"error"', b'{ "error"')):
            raise stream_error(_head(response), event.data, self.endpoint.api_key)
        return event.data

    async def _open(self, request: Request, url: URL, headers: CIMultiDict[str]) -> aiohttp.ClientResponse:
        if not self._hooked:
            sent, data = None, request.data
        else:
            sent = await self._hooked_request(request, url, headers)
            url, headers, data = URL(str(sent.url)), aiohttp_headers(sent), sent.content
        response = await self.transport.open(url, headers, data)
        try:
            if not 200 <= response.status < 300:
                raise status_error(await self.transport.read(response), self.endpoint.api_key)
            if self.response_hook is not None:
                await _call(self.response_hook, httpx_response(_head(response), sent))
        except BaseException:
            response.close()
            raise
        return response

    async def _bounded(self, step: Awaitable[T], request: Request, url: URL) -> T:
        """*step* under the time limit of an attempt, and open to `interrupt`."""
        try:
            async with asyncio.timeout(request.timeout_s) as scope:
                self._attempts[scope] = asyncio.get_running_loop()
                try:
                    return await step
                finally:
                    del self._attempts[scope]
        except TRANSPORT_ERRORS as exc:  # TimeoutError is an OSError
            raise self._failure(exc, scope, request, url) from exc


async def _call(hook: Hook, argument: Any) -> None:
    outcome = hook(argument)
    if inspect.isawaitable(outcome):
        await outcome


def _head(response: aiohttp.ClientResponse) -> Reply:
    return Reply(response.status, response.headers, b"", response.url)


async def _drain(response: aiohttp.ClientResponse) -> None:
    try:
        async with asyncio.timeout(_DRAIN_S):
            await response.content.readany()
    except (TimeoutError, aiohttp.ClientError):
        return
    response.release()
