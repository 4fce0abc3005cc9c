"""The connections to scorer processes: shared memory here, TCP elsewhere, and strangers are turned away."""

from __future__ import annotations

import asyncio
import base64
import struct

import pytest

from reward_service.workers.protocol import PROTOCOL_VERSION, pack

VIDEO = b"\0\0\0\x18ftypisom" + bytes(range(256)) * 40


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP"])
async def test_pixels_over_tcp_are_those_of_shared_memory(serve, reward, item, picture, kind) -> None:
    """Whichever way an item reaches a scorer, it sees the same pixels and the same video."""
    turn = item(image=picture((200, 100, 50), (37, 23), kind))["history"][0]
    sent = {"history": [{**turn, "video_b64": base64.b64encode(VIDEO).decode()}], "required_rewards": ["sum"]}
    answers = []
    for over_tcp in (False, True):
        async with serve(reward("sum", "Checksum"), over_tcp=over_tcp) as caller:
            answers.append((await caller.score(*[sent] * 3, item("x", "sum", image=picture("blue")))).results)
            assert caller.gateway.groups["sum"].replicas[0].link.shares_memory is not over_tcp
    assert answers[0] == answers[1]
    assert answers[0][0]["sum"]["image"] != answers[0][3]["sum"]["image"]


async def test_a_large_batch_over_tcp_arrives_whole(serve, reward, item, picture) -> None:
    """Megabytes in one frame, several rewards, several turns, texts in any script."""
    big = picture("red", (700, 700), "BMP")
    turns = [{"text": "ü 漢字", "image_b64": big}, {"text": "x", "image_b64": picture("blue", (700, 700), "BMP")}]
    items = [{"history": turns, "required_rewards": ["sum", "s"]} for _ in range(4)]
    async with serve(reward("sum", "Checksum"), reward(), over_tcp=True) as caller:
        answer = await caller.score(*items, item("ünïcode", "s", "sum", image=big))
    sums = [result["sum"]["image"] for result in answer.results]
    assert len(set(sums[:4])) == 1
    assert sums[0] != sums[4]
    assert [result["s"] for result in answer.results] == [{"value": 1.0}] * 5


@pytest.mark.parametrize("over_tcp", [False, True])
async def test_a_broken_connection_is_opened_again_and_loses_nothing(
    serve, reward, item, script, until, over_tcp
) -> None:
    """The process lives on, connects again, and what it held is scored."""
    async with serve(reward(params=script.gated, max_batch_size=4), over_tcp=over_tcp) as caller:
        (pid,) = caller.scorer_pids()
        calls = [caller.start(item(f"{n}")) for n in range(12)]
        await until(lambda: len(script.seen) >= 1)
        caller.gateway.groups["s"].replicas[0].link.close()
        script.open_gate()
        for call in calls:
            assert (await call).results == [{"s": {"value": 1.0}}]
        assert caller.scorer_pids() == [pid]


def hello(**changes):
    message = {
        "t": "hello", "role": "scorer", "protocol": PROTOCOL_VERSION, "reward": "s", "replica": 0, "incarnation": 1,
        "max_batch_size": 8, "slots": 1, "token": "",
    }  # fmt: skip
    return pack({**message, **changes})


@pytest.mark.parametrize(
    "stranger",
    [
        hello(token="guess"),
        hello(token="gueß"),
        pack({"t": "result", "id": 1, "items": [], "limit": 1}),
        pack({"t": "state", "state": "failed", "reason": "x"}),
        struct.pack("<II", 5, 0) + b"[1,2]",
        struct.pack("<II", 3, 0) + b"\xff\xff\xff",
        b"\xff" * 8,
        struct.pack("<II", 1 << 20, 1 << 30) + bytes(1 << 17),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_strangers_are_turned_away(serve, item, stranger) -> None:
    """No token, no entry: the connection is closed, and the service does not care."""
    async with serve(over_tcp=True) as caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", caller.gateway.links.tcp_port)
        writer.write(stranger)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(reader.readexactly(1), 30)
        writer.close()
        assert (await caller.score(item())).results == [{"s": {"value": 1.0}}]


@pytest.mark.parametrize("changes", [{"reward": "nope"}, {"replica": 7}, {"replica": "x"}, {"role": None, "slots": {}}])
async def test_a_hello_that_makes_no_sense_is_refused(serve, item, changes) -> None:
    """Also with the right token."""
    async with serve() as caller:
        links = caller.gateway.links
        reader, writer = await asyncio.open_unix_connection(links.unix_path)
        writer.write(hello(token=links.token, **changes))
        await asyncio.wait_for(reader.read(), 30)
        writer.close()
        assert (await caller.score(item())).results == [{"s": {"value": 1.0}}]


async def test_another_protocol_version_is_told_so(serve) -> None:
    """A process of another release learns why it is refused."""
    async with serve() as caller:
        links = caller.gateway.links
        reader, writer = await asyncio.open_unix_connection(links.unix_path)
        writer.write(hello(token=links.token, protocol=99))
        assert b"protocol 99, this gateway speaks" in await asyncio.wait_for(reader.read(), 30)
        writer.close()
