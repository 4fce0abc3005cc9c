"""An httpx transport over qreward's own, so that openai's client shares its connections, TLS settings and proxy."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from qreward.client.errors import TRANSPORT_ERRORS, httpx_of_openai
from qreward.client.transport import Transport

# What aiohttp sets itself, from the URL, the body and the connection.
OWN_HEADERS = frozenset({"host", "content-length", "transfer-encoding", "connection"})


def aiohttp_headers(request: Any) -> CIMultiDict[str]:
    """The headers of an httpx request, as aiohttp takes them."""
    return CIMultiDict((k, v) for k, v in request.headers.multi_items() if k.lower() not in OWN_HEADERS)


@functools.cache
def bridge_class() -> type[Any]:
    """The transport class for the httpx that openai uses."""
    httpx = httpx_of_openai()

    class Body(httpx.AsyncByteStream):  # type: ignore[misc, name-defined, unused-ignore] # one of two packages
        def __init__(self, response: aiohttp.ClientResponse, request: Any) -> None:
            self._response, self._request = response, request

        async def __aiter__(self) -> AsyncIterator[bytes]:
            while chunk := await _bounded(self._response.content.readany(), self._request):
                yield chunk

        async def aclose(self) -> None:
            self._response.close()  # does nothing to a connection that was released at the end of the body

    class Bridge(httpx.AsyncBaseTransport):  # type: ignore[misc, name-defined, unused-ignore] # one of two packages
        def __init__(self, transport: Transport) -> None:
            self._transport = transport

        async def handle_async_request(self, request: Any) -> Any:
            body = await request.aread()
            opened = self._transport.open(URL(str(request.url)), aiohttp_headers(request), body, request.method)
            response = await _bounded(opened, request)
            headers = [(k, v) for k, v in response.headers.items() if k.lower() != "content-encoding"]
            return httpx.Response(response.status, headers=headers, stream=Body(response, request))

    return Bridge


async def _bounded(step: Any, request: Any) -> Any:
    """*step* under the read timeout of *request*; failures become httpx's."""
    httpx = httpx_of_openai()
    limit = (request.extensions.get("timeout") or {}).get("read")
    try:
        async with asyncio.timeout(limit):
            return await step
    except TRANSPORT_ERRORS as exc:
        if isinstance(exc, TimeoutError):
            kind = httpx.ConnectTimeout if isinstance(exc, aiohttp.ConnectionTimeoutError) else httpx.ReadTimeout
        else:
            kind = httpx.ConnectError if isinstance(exc, aiohttp.ClientConnectorError) else httpx.ReadError
        raise kind(str(exc) or type(exc).__name__, request=request) from exc
