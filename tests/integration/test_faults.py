"""Faults that a service survives under load: real HTTP, real Ray, real processes that die."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import socket
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from .conftest import Service, item, reward, wait_until

pytestmark = pytest.mark.integration
CALLERS = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    """One service for the module: `pair` has two replicas, `solo` one; `gated` waits for a file."""
    running = Service(
        {
            "rewards": [
                reward("pair", num_replicas=2),
                reward("solo"),
                reward("hangs", hang_timeout_s=1.0, timeout_s=2.0),
                reward("gated", params={"record": str(folder / "record"), "wait_for": str(folder / "gate")}),
                reward("noop", "Noop"),
            ]
        },
        folder,
    )
    try:
        running.wait_ready()
        yield running
        assert running.stop() == 0
    finally:
        running.kill()


Post = Callable[..., Any]


@pytest.fixture
async def post(service: Service) -> AsyncIterator[Post]:
    """``await post(item, …)`` → (results, errors)."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(*items: dict[str, Any]) -> tuple[list[Any], list[Any]]:
            # aiohttp warns of large bodies unless they are files.
            data = io.BytesIO(json.dumps({"requests": list(items)}).encode())
            headers = {"Content-Type": "application/json"}
            async with session.post(service.url + "/score", data=data, headers=headers) as response:
                body = await response.json()
                assert response.status == 200, body
                return body["results"], body["errors"]

        yield call


async def under_load(post: Post, name: str, calls: int, disturb: Callable[[], None]) -> list[Any]:
    """*calls* single-item calls, `CALLERS` at a time; *disturb* once a quarter of them is answered."""
    answers: list[Any] = []
    numbers = iter(range(calls))

    async def caller() -> None:
        for number in numbers:
            answers.append(await post(item("sleep:0.002", name, metadata={"number": number})))
            if len(answers) == calls // 4:
                disturb()

    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return answers


def pid_of(service: Service, name: str, index: int = 0) -> int:
    return int(wait_until(lambda: service.replicas(name)[index]["pid"], f"a process of {name}"))


@pytest.mark.parametrize("name", ["pair", "solo"])
async def test_a_killed_scorer_process_loses_nothing(service: Service, post: Post, name: str) -> None:
    """kill -9 under load: another replica takes over, or the restarted process does; every call is answered."""
    before = pid_of(service, name)
    answers = await under_load(post, name, 200, lambda: os.kill(before, signal.SIGKILL))
    assert all(results[0][name] == {"value": 1.0} and errors == [{}] for results, errors in answers)
    wait_until(lambda: service.replicas(name)[0]["state"] == "ready", "the replica is back")
    assert pid_of(service, name) != before


async def test_a_killed_actor_loses_nothing(service: Service, post: Post) -> None:
    """kill -9 of the Ray actor takes its scorer process along; Ray restarts it and every call is answered."""
    scorer = psutil.Process(pid_of(service, "solo"))
    actor = scorer.parent()
    assert actor is not None
    answers = await under_load(post, "solo", 100, actor.kill)
    assert all(results[0]["solo"] == {"value": 1.0} and errors == [{}] for results, errors in answers)
    wait_until(lambda: not scorer.is_running(), "the end of the orphan")
    service.remember()


@pytest.mark.parametrize(
    ("poison", "error"), [("exit", "ReplicaDied"), ("kill", "ReplicaDied"), ("raise", "ValueError('asked to raise')")]
)
async def test_one_poisoned_item_among_many_callers_fails_alone(post: Post, poison: str, error: str) -> None:
    """Of 32 concurrent callers exactly the one with the poison gets an error."""
    prompts = [poison if number == 7 else f"fine {number}" for number in range(CALLERS)]
    answers = await asyncio.gather(*(post(item(prompt, "pair")) for prompt in prompts))
    for prompt, (results, errors) in zip(prompts, answers, strict=True):
        if prompt == poison:
            assert results == [{}]
            assert errors[0]["pair"].startswith(error)
        else:
            assert (results, errors) == ([{"pair": {"value": 1.0}}], [{}])


async def test_a_hanging_scorer_is_replaced(service: Service, post: Post) -> None:
    """Its reward times out, the others answer, and the process is replaced after hang_timeout_s."""
    before = pid_of(service, "hangs")
    results, errors = await post(item("hang", "hangs", "noop"))
    assert results == [{"noop": {"noop": 4.0}}]
    assert set(errors[0]) == {"hangs"}
    wait_until(lambda: pid_of(service, "hangs") != before and service.replicas("hangs")[0]["state"] == "ready", "new")
    results, errors = await post(item("fine", "hangs"))
    assert errors == [{}]


def png_header(width: int, height: int) -> str:
    """A PNG that claims a size and holds no pixels worth the name, as base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(b"\0" * (height * (width * 3 + 1)), 9)
    return base64.b64encode(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    ).decode()


def peak_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])


async def test_giant_pictures_are_refused_from_their_header(service: Service, post: Post) -> None:
    """Eight valid 9000 × 9000 PNGs in one body: refused by size, memory flat, other requests unharmed."""
    bomb = await asyncio.to_thread(png_header, 9000, 9000)
    Path(f"/proc/{service.process.pid}/clear_refs").write_text("5")
    before = peak_kib(service.process.pid)
    bombs = post(*(item("bomb", "noop", image=bomb) for _ in range(8)))
    (results, errors), *others = await asyncio.gather(bombs, *(post(item("fine", "noop")) for _ in range(8)))
    assert results == [{}] * 8
    assert all("9,000 × 9,000" in error["noop"] for error in errors)
    assert all(other == ([{"noop": {"noop": 4.0}}], [{}]) for other in others)
    # One decoded picture alone would be 243 MB.
    assert peak_kib(service.process.pid) - before < 64 * 1024


async def test_health_answers_while_every_replica_is_busy(service: Service, post: Post, folder: Path) -> None:
    """200 probes come back while the only replica is held up; items of a client that leaves never run."""
    (folder / "gate").unlink(missing_ok=True)
    held = asyncio.create_task(post(item("first", "gated")))
    await asyncio.to_thread(wait_until, lambda: "first" in seen(folder), "the first item at the model")
    reader = await leave_after_sending(service, [item(f"abandoned {n}", "gated") for n in range(50)])
    wait_for_queue = lambda count: lambda: service.get("/health")[1]["details"]["gated"]["queued"] == count  # noqa: E731
    await asyncio.to_thread(wait_until, wait_for_queue(50), "50 items in the queue")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def probe() -> int:
            async with session.get(service.url + "/health") as response:
                return response.status

        assert await asyncio.gather(*(probe() for _ in range(200))) == [200] * 200
    assert not held.done()
    reader.close()
    await asyncio.to_thread(
        wait_until, lambda: service.get("/health")[1]["requests_in_flight"] == 1, "the client that left is forgotten"
    )
    last = asyncio.create_task(post(item("last", "gated")))
    await asyncio.to_thread(wait_until, wait_for_queue(1), "the last item alone in the queue")
    (folder / "gate").touch()
    await asyncio.gather(held, last)
    assert [text for text in seen(folder) if text.startswith("abandoned")] == []
    assert seen(folder)[-1] == "last"


def seen(folder: Path) -> list[str]:
    record = folder / "record"
    return [line.split("\t", 1)[1] for line in record.read_text().splitlines()] if record.exists() else []


async def leave_after_sending(service: Service, items: list[Any]) -> socket.socket:
    """POST *items* over a bare socket that nobody reads from."""
    body = json.dumps({"requests": items}).encode()
    head = f"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", service.port))
    await asyncio.to_thread(connection.sendall, head.encode() + body)
    return connection
