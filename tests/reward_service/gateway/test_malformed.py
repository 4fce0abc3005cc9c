"""Whatever bytes arrive at POST /score: an answer comes, it is never a 500, and the next request is served."""

from __future__ import annotations

import asyncio
import copy
import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

PACKED = "application/x-msgpack"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(-(2**80), 2**80) | st.floats()
    | st.text(max_size=20) | st.sampled_from(["s", "nan", PNG, "\ud800", "/etc/passwd", "\0", "data:,", "k"])
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def valid_body() -> dict[str, Any]:
    item = {
        "history": [{"text": "x", "image_b64": PNG}], "required_rewards": ["s"], "metadata": {"a": [1, {"b": None}]},
        "request_id": "r", "sample_id": None, "group_id": "g", "source_rank": 0, "policy_version": 1,
        "scorer_version": None, "idempotency_key": "k",
    }  # fmt: skip
    return {
        "requests": [item, copy.deepcopy({**item, "idempotency_key": None})], "protocol_version": "1",
        "grad_mode": False, "call_id": None, "priority": 5, "deadline_s": 5.0,
        "aggregation": {"method": "mean", "weights": {"s": 1.0}, "sub_metric_reduce": "first"},
    }  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside *value*."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if at else []
    for key, part in inner:
        found += places(part, (*at, key))
    return found


@st.composite
def mutated_bodies(draw: DrawFn) -> Any:
    """A valid body with a few values replaced, removed, doubled or added."""
    body = valid_body()
    for _ in range(draw(st.sampled_from([1, 1, 1, 2, 4]))):
        *path, last = draw(st.sampled_from(places(body)))
        parent = body
        for key in path:
            parent = parent[key]
        action = draw(st.sampled_from(["replace", "replace", "replace", "remove", "double", "add"]))
        if action == "replace":
            parent[last] = draw(VALUES)
        elif action == "remove":
            del parent[last]
        elif action == "double" and isinstance(parent, list):
            parent.append(parent[last])
        elif isinstance(parent, dict):
            parent[draw(st.sampled_from(["image", "video", "video_b64", "video_path", "image_ipc", "new"]))] = draw(
                VALUES
            )
        if not body:
            break
    return body


@st.composite
def bit_flips(draw: DrawFn, whole: bytes) -> bytes:
    """*whole* with bytes overwritten, cut off or inserted."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 5))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
    return bytes(data[: draw(st.integers(0, len(data))) or None])


def as_json(body: Any) -> bytes:
    return json.dumps(body).encode()


def as_msgpack(body: Any) -> bytes:
    return msgspec.msgpack.encode(packable(body))


def packable(value: Any) -> Any:
    """*value* without what msgpack cannot say: integers beyond 64 bits and lone surrogates."""
    if isinstance(value, dict):
        return {packable(key): packable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [packable(part) for part in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 63:
        return float(value)
    return value


BODIES = st.one_of(
    mutated_bodies().map(lambda body: (as_json(body), "application/json")),
    mutated_bodies().map(lambda body: (as_msgpack(body), PACKED)),
    VALUES.map(lambda body: (as_json(body), "application/json")),
    VALUES.map(lambda body: (as_msgpack(body), PACKED)),
    st.binary(max_size=200).flatmap(lambda raw: st.sampled_from([(raw, "application/json"), (raw, PACKED)])),
    bit_flips(as_json(valid_body())).map(lambda raw: (raw, "application/json")),
    bit_flips(as_msgpack(valid_body())).map(lambda raw: (raw, PACKED)),
)


def check(answer: Any) -> None:
    """The shape that every answer has."""
    if answer.status != 200:
        assert answer.status in (400, 409, 413, 422, 429), (answer.status, answer.raw)
        assert isinstance(answer.detail, str)
        assert len(answer.raw) < 5_000
        return
    body = answer.body
    count = len(body["results"])
    assert len(body["errors"]) == len(body["identities"]) == count
    for result, errors in zip(body["results"], body["errors"], strict=True):
        assert set(result) | set(errors) <= {"s"}
        for scores in result.values():
            assert all(score is None or math.isfinite(score) for score in scores.values())
    if "aggregated" in body:
        assert len(body["aggregated"]) == count


async def test_malformed_bodies_never_break_the_service(serve, item) -> None:
    """Mutated, random and broken bodies, JSON and msgpack, against one service."""
    async with serve(server={"video_roots": ["/tmp"]}) as caller:
        loop = asyncio.get_running_loop()

        @settings(max_examples=400, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(BODIES)
        def hold(case: tuple[bytes, str]) -> None:
            raw, kind = case
            answered = asyncio.run_coroutine_threadsafe(caller.post(raw, Content_Type=kind), loop)
            check(answered.result(timeout=30))

        await asyncio.to_thread(hold)
        assert (await caller.score(item())).results == [{"s": {"value": 1.0}}]
        assert caller.gateway.groups["s"].replicas[0].restarts == 0


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"a": NaN}', b'{"a": [Infinity, -Infinity]}', b'{"a": 1e999}', b'{"a": 1180591620717411303424}',
        b'{"a": 1180591620717411303424, "b": NaN}', b'{"a": -0.0, "": "\\u0000"}', b'{"a": "\\ud83d\\ude00"}',
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", [b"null", b'"k"'])
async def test_unusual_numbers_in_metadata_do_no_harm(serve, metadata: bytes, key: bytes) -> None:
    """Python's json writes NaN and integers of any size; the item is scored, in one process's life."""
    turn = b'{"text": "x", "image_b64": "%b"}' % PNG.encode()
    body = b'{"requests": [{"history": [%b], "required_rewards": ["s"], "metadata": %b, "idempotency_key": %b}]}'
    async with serve() as caller:
        for _ in range(2):
            answer = await caller.post(body % (turn, metadata, key))
            assert answer.results == [{"s": {"value": 1.0}}]
        assert caller.gateway.groups["s"].replicas[0].restarts == 0
        assert caller.gateway.groups["s"].ready


@pytest.mark.parametrize(
    "head",
    [
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: \xff\xfe\r\nAccept: \xff\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /score HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
)
async def test_broken_http_is_refused(serve, item, head: bytes) -> None:
    """Nonsense in headers gets a 4xx or a closed connection, and the service goes on."""
    async with serve() as caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url.rpartition(":")[2]))
        writer.write(head)
        writer.write_eof()
        line = await asyncio.wait_for(reader.readline(), 30)
        assert not line or line.split()[1].startswith(b"4"), line
        writer.close()
        assert (await caller.score(item())).results == [{"s": {"value": 1.0}}]


async def test_a_client_that_asks_first_is_told_before_it_sends(serve) -> None:
    """Expect: 100-continue with a body over the limit: the refusal comes at once, not the go-ahead."""
    async with serve(limits={"max_body_bytes": "1MiB"}) as caller:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url.rpartition(":")[2]))
        writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9000000\r\n\r\n")
        line = await asyncio.wait_for(reader.readline(), 30)
        writer.close()
    assert line.split()[1] == b"413"
