"""Fixtures of the gateway's tests: a real gateway with real scorer processes, and a caller that speaks HTTP.

Every service that `serve` starts is checked when it ends: no decoded byte, no body byte and no request may be
left, no bound may have been passed, and no process may stay behind.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import io
import json
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import psutil
import pytest
from PIL import Image

from reward_service.testing.local import LocalService, local_service

# Far more than anything here takes; a condition that is not met by then never will be.
PATIENCE_S = 30.0


@dataclass(frozen=True)
class Answer:
    """What came back over HTTP."""

    status: int
    headers: Any
    raw: bytes

    @property
    def body(self) -> Any:
        return orjson.loads(self.raw)

    @property
    def results(self) -> list[dict[str, dict[str, float | None]]]:
        assert self.status == 200, self.raw
        return self.body["results"]

    @property
    def errors(self) -> list[dict[str, str]]:
        assert self.status == 200, self.raw
        return self.body["errors"]

    @property
    def detail(self) -> str:
        return self.body["detail"]


class Caller:
    """A client of one running service."""

    def __init__(self, service: LocalService, session: aiohttp.ClientSession) -> None:
        self.service = service
        self.gateway = service.gateway
        self.url = service.url
        self.session = session

    async def post(self, body: Any, **headers: str) -> Answer:
        """POST /score with *body*: bytes (or an async iterator of them) as they are, else as JSON."""
        data = body if isinstance(body, bytes) or hasattr(body, "__aiter__") else json.dumps(body).encode()
        # aiohttp warns of large bodies unless they are files.
        data = io.BytesIO(data) if isinstance(data, bytes) else data
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.session.post(
            f"{self.url}/score", data=data, headers={"Content-Type": "application/json", **names}
        ) as response:
            return Answer(response.status, response.headers, await response.read())

    async def score(self, *items: dict[str, Any], **fields: Any) -> Answer:
        """POST /score with *items* and further top-level *fields*."""
        return await self.post({"requests": list(items), **fields})

    def start(self, *items: dict[str, Any], **fields: Any) -> asyncio.Task[Answer]:
        """The same in the background."""
        return asyncio.create_task(self.score(*items, **fields))

    async def get(self, path: str) -> Answer:
        """GET *path*."""
        async with self.session.get(self.url + path) as response:
            return Answer(response.status, response.headers, await response.read())

    def queued(self, reward: str = "s") -> int:
        """Items that wait for *reward*."""
        return self.gateway.groups[reward].queue.live()

    def scorer_pids(self, reward: str = "s") -> list[int | None]:
        """Process ids of the scorer processes of *reward*."""
        return [replica.pid for replica in self.gateway.groups[reward].replicas]


async def wait_until(condition: Callable[[], bool], what: str = "the condition") -> None:
    """Return once *condition* holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.002)
    assert condition(), what


@pytest.fixture
def until() -> Callable[..., Any]:
    """``await until(lambda: …)`` returns once the condition holds, and fails when it never does."""
    return wait_until


class Script:
    """The files behind a `Scripted` scorer: what it saw, and the gate it waits at."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.params = {"record": str(folder / "record")}
        self.gated = {**self.params, "wait_for": str(folder / "gate")}

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    @property
    def calls(self) -> list[tuple[int, str]]:
        """Per item that reached the model: the size of its batch, and its prompt."""
        record = self.folder / "record"
        lines = record.read_text().splitlines() if record.exists() else []
        return [(int(size), text) for size, text in (line.split("\t", 1) for line in lines)]

    @property
    def seen(self) -> list[str]:
        """Prompts that reached the model, in order."""
        return [text for _, text in self.calls]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Files for one `Scripted` scorer."""
    return Script(tmp_path / "script")


@pytest.fixture
def another_script(tmp_path: Path) -> Script:
    """Files for a second one."""
    return Script(tmp_path / "another-script")


def make_reward(name: str = "s", scorer: str = "Scripted", **fields: Any) -> dict[str, Any]:
    return {"name": name, "scorer": f"reward_service.testing.scorers:{scorer}", "num_gpus": 0, **fields}


@pytest.fixture
def reward() -> Callable[..., dict[str, Any]]:
    """``reward(name="s", scorer="Scripted", **fields)``: one entry of a config's rewards."""
    return make_reward


def encoded(image: Image.Image, kind: str) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.fixture
def picture() -> Callable[..., str]:
    """``picture(colour="red", size=(16, 16), kind="PNG")`` as base64."""
    return lambda colour="red", size=(16, 16), kind="PNG": encoded(Image.new("RGB", size, colour), kind)


RED = encoded(Image.new("RGB", (16, 16), "red"), "PNG")


@pytest.fixture
def item() -> Callable[..., dict[str, Any]]:
    """``item(text, *rewards, image=…, **fields)``: one request; without rewards, of the reward ``s``."""

    def make(text: str = "a prompt", *rewards: str, image: str = RED, **fields: Any) -> dict[str, Any]:
        history = [{"text": text, "image_b64": image}]
        return {"history": history, "required_rewards": list(rewards or ("s",)), **fields}

    return make


def alive(pids: Iterable[int | None]) -> list[int]:
    return [
        pid
        for pid in pids
        if pid is not None and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


@pytest.fixture
def serve() -> Callable[..., contextlib.AbstractAsyncContextManager[Caller]]:
    """``async with serve(reward(), …, server={…}, limits={…}) as caller``; see the module's docstring."""

    @contextlib.asynccontextmanager
    async def running(
        *rewards: dict[str, Any],
        server: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        settled: bool = True,
        over_tcp: bool = False,
    ) -> AsyncIterator[Caller]:
        config = {"server": server or {}, "limits": limits or {}, "rewards": rewards or [make_reward()]}
        before = set(psutil.Process(os.getpid()).children(recursive=True))
        async with (
            local_service(json.dumps(config), settled=settled, over_tcp=over_tcp) as service,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        ):
            if settled:
                await wait_until(lambda: all_up_or_failed(service))
            yield Caller(service, session)
            await wait_until_empty(service)
        left = set(psutil.Process(os.getpid()).children(recursive=True)) - before
        assert not left, f"processes left behind: {left}"

    return running


def all_up_or_failed(service: LocalService) -> bool:
    """Every replica, where `until_settled` is content with one per reward."""
    replicas = [replica for group in service.gateway.groups.values() for replica in group.replicas]
    return all(replica.link is not None or replica.state == "failed" for replica in replicas)


async def wait_until_empty(service: LocalService) -> None:
    """The memory's promises: everything that was taken comes back, and no bound was passed on the way."""
    gateway = service.gateway
    await wait_until(lambda: gateway.requests == 0, "a request never ended")
    await wait_until(lambda: gateway.arena.used == 0, "decoded bytes were never returned")
    assert gateway.bodies.used == 0
    assert gateway.bodies.waiting == 0
    assert gateway.arena.peak <= gateway.arena.capacity
    assert gateway.bodies.peak <= gateway.bodies.capacity
    assert all(not group.queue.live() for group in gateway.groups.values())


@pytest.fixture
def caller_of_half_a_body() -> Callable[..., Any]:
    """Sends the head and a part of a body, then waits; returns the head of the answer."""

    async def call(caller: Caller, kind: str) -> bytes:
        head = {"declared": b"Content-Length: 1000", "chunked": b"Transfer-Encoding: chunked"}[kind]
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url.rpartition(":")[2]))
        start = b'{"requests": ['
        part = start if kind == "declared" else b"%x\r\n%b\r\n" % (len(start), start)
        writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + part)
        try:
            return await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S)
        finally:
            writer.close()

    return call


@pytest.fixture
def blocking_post() -> Callable[..., Any]:
    """POST /score as simple clients do it: the whole body is sent before the answer is looked at."""

    def post(url: str, body: Any) -> Answer:
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE_S)
        with contextlib.closing(connection):
            connection.request("POST", "/score", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())

    return lambda caller, body: asyncio.to_thread(post, caller.url, body)
