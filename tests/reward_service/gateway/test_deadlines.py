"""Deadlines count from arrival, include every queue, and what is late or abandoned reaches no model."""

from __future__ import annotations

import asyncio

import pytest


async def test_a_slow_reward_times_out_and_the_others_answer(serve, reward, item, script) -> None:
    """The error is typed and names the reward and the bound; the sibling's score stands."""
    slow = reward("slow", params=script.gated, timeout_s=0.3)
    async with serve(slow, reward("quick", "Noop")) as caller:
        answer = await caller.score(item("xx", "slow", "quick"), item("xxx", "quick", "slow"))
        assert answer.results == [{"quick": {"noop": 2.0}}, {"quick": {"noop": 3.0}}]
        assert answer.errors == [{"slow": "TimeoutError(\"reward 'slow' exceeded 0.3s\")"}] * 2
        script.open_gate()


async def test_the_servers_timeout_holds_for_rewards_without_their_own(serve, reward, item, script) -> None:
    """server.score_timeout_s is the default of timeout_s."""
    async with serve(reward(params=script.gated), server={"score_timeout_s": 0.3}) as caller:
        answer = await caller.score(item())
        assert answer.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.3s\")"}]
        script.open_gate()


async def test_a_requests_deadline_shortens_and_never_lengthens(serve, reward, item, script) -> None:
    """deadline_s counts where it is the shorter one."""
    async with serve(reward(params=script.gated, timeout_s=0.3)) as caller:
        short, long = await asyncio.gather(
            caller.score(item(), deadline_s=0.1), caller.score(item(), deadline_s=1000.0)
        )
        assert short.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.1s\")"}]
        assert long.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.3s\")"}]
        script.open_gate()


async def test_an_item_that_expires_in_the_queue_reaches_no_model(serve, reward, item, script, until) -> None:
    """The deadline includes the wait, and the answer does not wait for the replica."""
    async with serve(reward(params=script.gated, max_batch_size=1)) as caller:
        first = caller.start(item("first"))
        await until(lambda: script.seen == ["first"])
        late = await caller.score(item("late"), deadline_s=0.1)
        assert late.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.1s\")"}]
        last = caller.start(item("last"))
        await until(lambda: caller.queued() == 1)
        script.open_gate()
        assert (await first).results == (await last).results == [{"s": {"value": 1.0}}]
    assert script.seen == ["first", "last"]


async def test_items_of_a_client_that_left_reach_no_model(serve, reward, item, script, until) -> None:
    """A closed connection takes its queued items with it, and the memory of their pictures."""
    async with serve(reward(params=script.gated, max_batch_size=1)) as caller:
        first = caller.start(item("first"))
        await until(lambda: script.seen == ["first"])
        held = caller.gateway.arena.used
        gone = caller.start(*(item(f"gone {n}") for n in range(50)))
        await until(lambda: caller.queued() == 50)
        gone.cancel()
        await until(lambda: caller.queued() == 0)
        await until(lambda: caller.gateway.requests == 1)
        assert caller.gateway.arena.used == held
        last = caller.start(item("last"))
        await until(lambda: caller.queued() == 1)
        script.open_gate()
        assert (await first).results == (await last).results == [{"s": {"value": 1.0}}]
    assert script.seen == ["first", "last"]


async def test_the_deadline_holds_while_waiting_for_room_for_decoded_images(
    serve, reward, item, picture, script, until
) -> None:
    """An item whose picture finds no room is answered in time, and leaves nothing behind."""
    big = picture("red", (100, 100))
    limits = {"decoded_bytes_in_flight": 40_960, "max_image_pixels": 10_000}
    async with serve(reward(params=script.gated), limits=limits) as caller:
        holder = caller.start(item("holder", image=big))
        await until(lambda: script.seen == ["holder"])
        late = await caller.score(item("late", image=big), item("late too", image=big), deadline_s=0.2)
        assert late.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.2s\")"}] * 2
        script.open_gate()
        assert (await holder).results == [{"s": {"value": 1.0}}]
        assert (await caller.score(item("next", image=big))).results == [{"s": {"value": 1.0}}]
    assert script.seen == ["holder", "next"]


async def test_a_client_that_leaves_while_waiting_for_room_is_forgotten(
    serve, reward, item, picture, script, until
) -> None:
    """Its request ends although the room never came, and it does not stand in the way of the next one."""
    big = picture("red", (100, 100))
    limits = {"decoded_bytes_in_flight": 40_960, "max_image_pixels": 10_000}
    async with serve(reward(params=script.gated), limits=limits) as caller:
        holder = caller.start(item("holder", image=big))
        await until(lambda: script.seen == ["holder"])
        gone = caller.start(item("gone", image=big))
        await until(lambda: caller.gateway.requests == 2)
        next_one = caller.start(item("next", image=big))
        await until(lambda: caller.gateway.requests == 3)
        gone.cancel()
        await until(lambda: caller.gateway.requests == 2)
        script.open_gate()
        assert (await holder).results == (await next_one).results == [{"s": {"value": 1.0}}]
    assert script.seen == ["holder", "next"]


async def test_a_hung_scorer_is_replaced(serve, reward, item, script, until) -> None:
    """Its reward times out while the other answers; after hang_timeout_s a new process serves again."""
    hanging = reward(timeout_s=0.2, hang_timeout_s=0.5, params=script.params)
    async with serve(hanging, reward("quick", "Noop")) as caller:
        (before,) = caller.scorer_pids()
        answer = await caller.score(item("hang", "s", "quick"))
        assert answer.results == [{"quick": {"noop": 4.0}}]
        assert answer.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.2s\")"}]
        group = caller.gateway.groups["s"]
        await until(lambda: group.replicas[0].restarts == 1 and group.ready)
        assert (await caller.score(item("fine"), deadline_s=30)).status == 200
        (after,) = caller.scorer_pids()
        assert after != before
    assert script.seen.count("hang") == 1


async def test_health_answers_while_every_replica_is_busy(serve, reward, item, script, until) -> None:
    """A health probe never waits for a model."""
    async with serve(reward(params=script.gated, max_batch_size=1)) as caller:
        calls = [caller.start(item(f"{n}")) for n in range(20)]
        await until(lambda: caller.queued() == 19)
        probes = await asyncio.gather(*(caller.get("/health") for _ in range(200)))
        assert {probe.status for probe in probes} == {200}
        assert {probe.body["details"]["s"]["queued"] for probe in probes} == {19}
        assert not any(call.done() for call in calls)
        script.open_gate()
        for call in calls:
            assert (await call).status == 200


@pytest.mark.parametrize("kind", ["chunked", "declared"])
async def test_a_body_that_never_ends_is_given_up(serve, caller_of_half_a_body, kind) -> None:
    """The time a body takes counts: 503 with Retry-After, and its room is returned."""
    async with serve(server={"score_timeout_s": 0.3}) as caller:
        answer = await caller_of_half_a_body(caller, kind)
        assert b"503" in answer.splitlines()[0]
        assert b"retry-after:" in answer.lower()
