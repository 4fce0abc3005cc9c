"""A judge that counts, a proxy for it, and a server that sends whatever bytes a test wants."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import AsyncIterator, Callable

import pytest

from qreward.client.core import ProxyCore
from qreward.client.openai import OpenAIChatProxy
from qreward.policy.backoff import Backoff
from qreward.testing.judge import FakeJudge

USER = [{"role": "user", "content": "hello"}]


@pytest.fixture
def hello() -> list[dict[str, str]]:
    return [dict(message) for message in USER]


@pytest.fixture
async def judge() -> AsyncIterator[FakeJudge]:
    async with FakeJudge() as judge:
        yield judge


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long the waits between attempts are is the policies' business, and tested there."""
    for name in ("_plan", "_routed_plan"):
        plan = getattr(ProxyCore, name)
        retry = dataclasses.replace(plan.retry, backoff=Backoff(base_s=0.001))
        monkeypatch.setattr(ProxyCore, name, dataclasses.replace(plan, retry=retry))


@pytest.fixture
async def proxy(judge: FakeJudge) -> AsyncIterator[OpenAIChatProxy]:
    async with OpenAIChatProxy(judge.url, api_key="sk-secret-key", rate_limiter_bucket_size=None) as proxy:
        yield proxy


class RawServer:
    """Answers every request with the pieces of `pieces`, a short pause between them; then closes the connection."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.requests: list[bytes] = []
        self.pause_s = 0.0
        self.connections = 0
        self.keep_alive = False  # answer further requests on the same connection
        self.hold = False  # keep the connection open after the last piece
        self.gone = asyncio.Event()  # a client closed its side
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._answer_one(reader, writer)
            while self.keep_alive:
                await self._answer_one(reader, writer)
            if self.hold:
                await reader.read()
                self.gone.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            self.gone.set()
        finally:
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        body = await reader.readexactly(int(length.group(1))) if length else b""
        self.requests.append(head + body)
        for piece in self.pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self.pause_s)

    def answer(self, body: bytes, *headers: str, status: str = "200 OK", kind: str = "application/json") -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.pieces = ["\r\n".join(lines).encode() + body]

    def headers(self, index: int = 0) -> dict[str, str]:
        """The headers of a request, names in lower case."""
        lines = self.requests[index].partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}

    def stream(self, *pieces: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        self.pieces = [head, *pieces]


@pytest.fixture
async def raw() -> AsyncIterator[RawServer]:
    raw = RawServer()
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    raw.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield raw
    server.close()


@pytest.fixture
async def proxy_for() -> AsyncIterator[Callable[..., OpenAIChatProxy]]:
    made: list[OpenAIChatProxy] = []

    def make(url: str, **settings: object) -> OpenAIChatProxy:
        options = {"api_key": "sk-secret-key", "rate_limiter_bucket_size": None, **settings}
        made.append(OpenAIChatProxy(url, **options))
        return made[-1]

    yield make
    for proxy in made:
        await proxy.aclose()
