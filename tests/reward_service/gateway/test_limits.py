"""What one client may cost: each limit refuses with its own status, names itself, and harms nobody else."""

from __future__ import annotations

import asyncio
import json

import pytest

FINE = [{"s": {"value": 1.0}}]


async def pieces(data: bytes, size: int = 65_536):
    for start in range(0, len(data), size):
        yield data[start : start + size]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_and_the_answer_seen(serve, item, blocking_post, chunked) -> None:
    """413, declared or found out on the way, although the client sends all of it before it reads an answer."""
    body = json.dumps({"requests": [item("x" * 30_000_000)]}).encode()
    async with serve(limits={"max_body_bytes": "1MiB"}) as caller:
        answer = await blocking_post(caller, iter([body]) if chunked else body)
        assert answer.status == 413
        assert "limits.max_body_bytes" in answer.detail
        assert (await caller.score(item())).results == FINE


async def test_a_chunked_body_within_the_limit_is_fine(serve, item) -> None:
    """Streaming clients need no Content-Length."""
    body = json.dumps({"requests": [item()]}).encode()
    async with serve() as caller:
        assert (await caller.post(pieces(body, 10))).results == FINE


@pytest.mark.parametrize(
    ("limits", "count", "fields", "status", "name"),
    [
        ({"max_items_per_request": 2}, 3, {}, 413, "limits.max_items_per_request"),
        ({"max_text_chars": 10}, 1, {"text": "x" * 11}, 422, "limits.max_text_chars"),
        ({"max_json_depth": 3}, 1, {"metadata": {"a": [[1]]}}, 422, "limits.max_json_depth"),
    ],
)
async def test_limits_of_one_request(serve, item, limits, count, fields, status, name) -> None:
    """Too many items, too long a text, too deep metadata: refused as a whole, by name."""
    text = fields.pop("text", "x") if "text" in fields else "x"
    async with serve(limits=limits) as caller:
        answer = await caller.score(*(item(text, **fields) for _ in range(count)))
        assert (answer.status, name in answer.detail) == (status, True)
        assert (await caller.score(item("ok", metadata={"a": [1]}))).results == FINE


async def test_a_full_queue_is_429_with_retry_after(serve, reward, item, script, until) -> None:
    """The queue has a bound; those that left it, answered or abandoned, do not count."""
    async with serve(reward(params=script.gated, max_batch_size=1), limits={"max_queued_items": 4}) as caller:
        running = caller.start(item("running"))
        await until(lambda: script.seen == ["running"])
        gone = caller.start(*(item("gone") for _ in range(3)))
        await until(lambda: caller.queued() == 3)
        refused = await caller.score(item("x"), item("y"))
        assert (refused.status, refused.headers["retry-after"]) == (429, "1")
        assert "limits.max_queued_items" in refused.detail
        gone.cancel()
        await until(lambda: caller.queued() == 0)
        waiting = caller.start(*(item("late") for _ in range(4)))
        await until(lambda: caller.queued() == 4)
        script.open_gate()
        assert (await waiting).results == FINE * 4
        assert (await running).results == FINE


async def test_abandoned_items_do_not_pile_up_in_a_queue_that_nobody_takes_from(
    serve, reward, item, script, until
) -> None:
    """Clients that time out and try again, against a stuck replica, cost bounded memory."""
    async with serve(reward(params=script.gated, max_batch_size=1), limits={"max_queued_items": 4}) as caller:
        running = caller.start(item("running"))
        await until(lambda: script.seen == ["running"])
        for _ in range(6):
            answer = await caller.score(*(item("x") for _ in range(4)), deadline_s=0.05)
            assert "TimeoutError" in answer.errors[0]["s"]
            assert len(caller.gateway.groups["s"].queue) <= 4
        script.open_gate()
        assert (await running).results == FINE


@pytest.mark.parametrize("size", [10, 30_000_000])
async def test_too_many_requests_in_flight_is_503_with_retry_after(
    serve, reward, item, script, until, blocking_post, size
) -> None:
    """Beyond limits.max_requests_in_flight the refusal reaches the client, also one that first sends megabytes."""
    async with serve(reward(params=script.gated), limits={"max_requests_in_flight": 1}) as caller:
        running = caller.start(item("running"))
        await until(lambda: script.seen == ["running"])
        refused = await blocking_post(caller, json.dumps({"requests": [item("x" * size)]}).encode())
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert "limits.max_requests_in_flight" in refused.detail
        script.open_gate()
        assert (await running).results == FINE


async def test_bodies_wait_for_room_and_take_turns(serve, item) -> None:
    """body_bytes_in_flight bounds all bodies together; none is refused for coming when others are read."""
    body = json.dumps({"requests": [item("x" * 400_000)]}).encode()
    limits = {"max_body_bytes": "1MiB", "body_bytes_in_flight": "2MiB", "max_text_chars": 1_000_000}
    async with serve(limits=limits) as caller:
        answers = await asyncio.gather(*(caller.post(body) for _ in range(10)))
        assert [answer.results for answer in answers] == [FINE] * 10
        assert 800_000 < caller.gateway.bodies.peak <= 2 * 2**20


async def test_health_answers_while_a_large_body_is_taken_in(serve, item, picture, blocking_post) -> None:
    """60 MB of pictures in one body: the loop keeps answering others all along."""
    large = picture("red", (16, 16), "BMP") + " " * 58_000
    body = json.dumps({"requests": [item(f"{n}", image=large) for n in range(1024)]}).encode()
    assert len(body) > 60_000_000
    async with serve() as caller:
        call = asyncio.create_task(blocking_post(caller, body))
        answered_before_the_end = 0
        while not call.done():
            assert (await caller.get("/livez")).status == 200
            answered_before_the_end += not call.done()
        assert (await call).results == FINE * 1024
    assert answered_before_the_end >= 2


async def test_priority_and_limits_hold_for_each_reward_alone(serve, reward, item, script, until) -> None:
    """A full queue of one reward does not refuse work for another."""
    rewards = reward(params=script.gated, max_batch_size=1), reward("quick", "Noop")
    async with serve(*rewards, limits={"max_queued_items": 1}) as caller:
        calls = [caller.start(item("a"))]
        await until(lambda: script.seen == ["a"])
        calls.append(caller.start(item("b")))
        await until(lambda: caller.queued() == 1)
        assert (await caller.score(item("c"))).status == 429
        assert (await caller.score(item("c", "quick"))).results == [{"quick": {"noop": 1.0}}]
        assert (await caller.score(item("c", "quick", "s"))).status == 429
        script.open_gate()
        for call in calls:
            assert (await call).results == FINE


async def begin(caller, head: bytes, start: bytes = b""):
    """A client that sends the *head* of a request and the *start* of its body, and then takes its time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(caller.url.rpartition(":")[2]))
    writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\n" + head + b"\r\n\r\n" + start)
    return reader, writer


async def test_slow_clients_do_not_hold_up_the_others(serve, item, until) -> None:
    """Bodies that trickle in may fill the room for bodies, and more may wait; small requests pass."""
    async with serve(limits={"max_body_bytes": "8MiB", "body_bytes_in_flight": "16MiB"}) as caller:
        slow = [await begin(caller, b"Content-Length: 7000000") for _ in range(4)]
        await until(lambda: caller.gateway.bodies.waiting == 3)
        assert (await caller.score(item())).results == FINE
        for _, writer in slow:
            writer.close()


async def test_bodies_of_unknown_size_do_not_wait_for_each_other(serve, item, until) -> None:
    """Of two that hold room and need more, one waits and one is told to come again: 503 with Retry-After."""
    part = b"%x\r\n%b\r\n" % (2_500_000, b" " * 2_500_000)
    async with serve(limits={"max_body_bytes": "8MiB", "body_bytes_in_flight": "16MiB"}) as caller:
        _, holder = await begin(caller, b"Content-Length: 4000000")
        chunked = [await begin(caller, b"Transfer-Encoding: chunked") for _ in range(2)]
        await until(lambda: caller.gateway.bodies.used == 8_000_000 + 2 * 2**21)
        for _, writer in chunked:
            writer.write(part + b"0\r\n\r\n")
        answers = [asyncio.create_task(reader.readuntil(b"\r\n\r\n")) for reader, _ in chunked]
        await asyncio.wait(answers, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        holder.close()
        patient, refused = sorted([await asyncio.wait_for(answer, 30) for answer in answers])
        assert b" 422 " in patient.splitlines()[0]
        assert b" 503 " in refused.splitlines()[0]
        assert b"retry-after:" in refused
        for _, writer in chunked:
            writer.close()


async def test_a_large_chunked_body_is_counted_as_it_grows(serve, item) -> None:
    """Bodies of unknown size take room for what has arrived, not for the largest that is allowed."""
    small, large = (json.dumps({"requests": [item("x" * n)]}).encode() for n in (10, 5_000_000))
    limits = {"max_body_bytes": "8MiB", "body_bytes_in_flight": "40MiB", "max_text_chars": 10_000_000}
    async with serve(limits=limits) as caller:
        assert (await caller.post(pieces(small))).results == FINE
        assert caller.gateway.bodies.peak == 2 * 2**20
        assert (await caller.post(pieces(large))).results == FINE
        assert 2 * len(large) <= caller.gateway.bodies.peak <= 16 * 2**20
