"""Concurrent calls that share a POST. The linger is an hour: groups go when they are full."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from reward_service.client import AsyncRewardClient, RequestRefused, RewardClient, ServiceUnavailable
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(60)
HOUR_MS = 3_600_000.0


async def test_concurrent_single_calls_become_one_post(server, asking):
    """Eight callers, one POST, to each its own answer."""
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=8) as client:
        answers = await asyncio.gather(*(client.score([asking("x" * n)]) for n in range(1, 9)))
    assert answers == [[{"clip": {"clip": float(n)}}] for n in range(1, 9)]
    assert [len(post.requests) for post in server.posts] == [8]


def test_threads_are_coalesced_too(server, asking):
    """The blocking client behaves the same."""
    with (
        RewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=4) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        answers = list(pool.map(lambda n: client.score([asking("x" * n)]), range(1, 5)))
    assert answers == [[{"clip": {"clip": float(n)}}] for n in range(1, 5)]
    assert len(server.posts) == 1


def test_a_lonely_call_goes_after_the_linger(server, asking):
    """Nobody waits for companions that do not come."""
    with RewardClient(server.url, coalesce_ms=5) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]


async def test_calls_with_different_options_are_not_mixed(server, asking):
    """Two priorities, two POSTs."""
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=2) as client:
        await asyncio.gather(*(client.score([asking("a")], priority=n % 2) for n in range(4)))
    assert sorted((post.body["priority"], len(post.requests)) for post in server.posts) == [(0, 2), (1, 2)]


async def test_a_group_stays_below_the_byte_limit(server, asking):
    """Three items of 2 kB do not fit into 5 kB: the group of two goes, the third starts another."""
    requests = [asking("x" * n, image=bytes(1500)) for n in range(1, 5)]
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_body_bytes=5000) as client:
        answers = await asyncio.gather(*(client.score([request]) for request in requests))
    assert answers == [[{"clip": {"clip": float(n)}}] for n in range(1, 5)]
    assert [len(post.requests) for post in server.posts] == [2, 2]


async def test_a_call_over_the_limits_is_cut_by_itself(server, asking, prompts):
    """Coalescing does not merge what is too long already."""
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=2) as client:
        results = await client.score([asking("x" * n) for n in range(1, 6)])
    assert prompts(results) == [1, 2, 3, 4, 5]


async def test_a_failed_post_reaches_each_caller(server, asking):
    """As an exception of its own: one object in two callers would share a traceback."""
    server.faults.append(Fault(status=503))
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=2, max_retries=0) as client:
        errors = await asyncio.gather(*(client.score([asking("a")]) for _ in range(2)), return_exceptions=True)
    assert [type(error) for error in errors] == [ServiceUnavailable] * 2
    assert errors[0] is not errors[1]
    assert all(error.__cause__ is not None for error in errors)
    assert len(server.posts) == 1


async def test_a_bad_item_costs_only_its_own_caller(server, asking):
    """A refused POST is sent again call by call, with the same keys."""
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=3) as client:
        good, bad, fine = await asyncio.gather(
            client.score([asking("four")]),
            client.score([asking("a", rewards=["nope"])]),
            client.score([asking("ab")]),
            return_exceptions=True,
        )
    assert good == [{"clip": {"clip": 4.0}}]
    assert fine == [{"clip": {"clip": 2.0}}]
    assert isinstance(bad, RequestRefused)
    assert set(server.scored.values()) == {1}
    assert len({key for post in server.posts for key in post.keys}) == 3


async def test_a_cancelled_caller_does_not_hurt_the_others(server, asking):
    """Its POST goes on for them; when the last one leaves, the POST ends."""
    server.faults += [Fault(gate=True), Fault(hang=True)]
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=3) as client:
        calls = [asyncio.create_task(client.score([asking("x" * n)])) for n in range(1, 4)]
        await asyncio.to_thread(server.wait_for, lambda s: len(s.posts) == 1)
        calls[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        server.open_gate()
        assert await calls[1] == [{"clip": {"clip": 2.0}}]
        assert await calls[2] == [{"clip": {"clip": 3.0}}]
        assert server.aborted == 0

        calls = [asyncio.create_task(client.score([asking("a")])) for _ in range(3)]
        await asyncio.to_thread(server.wait_for, lambda s: len(s.posts) == 2)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.to_thread(server.wait_for, lambda s: s.aborted == 1)


async def test_a_caller_cancelled_while_it_waits_is_not_sent(server, asking):
    """Its item leaves the group; the group fills up with others."""
    async with AsyncRewardClient(server.url, coalesce_ms=HOUR_MS, max_items_per_request=2) as client:
        gone = asyncio.create_task(client.score([asking("gone")]))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(gone, 0.2)
        await asyncio.gather(client.score([asking("a")]), client.score([asking("b")]))
    assert [sorted(post.texts) for post in server.posts] == [["a", "b"]]


async def test_closing_ends_waiting_calls(server, asking):
    """A group that was never sent does not keep its callers."""
    client = AsyncRewardClient(server.url, coalesce_ms=HOUR_MS)
    call = asyncio.create_task(client.score([asking("a")]))
    assert (await client.health())["status"] == "ok"
    await client.close()
    with pytest.raises(Exception, match="closed"):
        await call
    assert server.posts == []
