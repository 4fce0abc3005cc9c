"""One queue per reward: replicas pull batches across requests, by priority and age; nothing is decoded twice."""

from __future__ import annotations

import pytest


async def test_single_items_of_many_callers_become_batches(serve, reward, item, script, until) -> None:
    """While the model is busy, calls of one item each wait together and leave as full batches."""
    async with serve(reward(params=script.gated, max_batch_size=8)) as caller:
        first = caller.start(item("first"))
        await until(lambda: script.seen == ["first"])
        others = [caller.start(item(f"{n}")) for n in range(16)]
        await until(lambda: caller.queued() == 16)
        script.open_gate()
        for call in (first, *others):
            assert (await call).results == [{"s": {"value": 1.0}}]
    assert [size for size, _ in script.calls] == [1] + [8] * 16


async def test_a_large_request_is_cut_into_batches(serve, reward, item, script) -> None:
    """max_batch_size bounds what a model sees at once, however many items a request has."""
    async with serve(reward(params=script.params, max_batch_size=4)) as caller:
        answer = await caller.score(*(item(f"{n}") for n in range(19)))
    assert answer.results == [{"s": {"value": 1.0}}] * 19
    assert max(size for size, _ in script.calls) <= 4
    assert sorted(script.seen, key=int) == [str(n) for n in range(19)]


async def test_the_scorers_own_batch_size_is_the_default(serve, reward, item, script, until) -> None:
    """Without max_batch_size in the config the class decides (32 for this one)."""
    async with serve(reward(params=script.gated)) as caller:
        first = caller.start(item("first"))
        await until(lambda: script.seen == ["first"])
        second = caller.start(*(item("x") for _ in range(40)))
        await until(lambda: caller.queued() == 40)
        script.open_gate()
        await first
        await second
    assert sorted({size for size, text in script.calls if text == "x"}) == [8, 32]


async def test_the_queue_is_by_priority_then_age(serve, reward, item, script, until) -> None:
    """0 goes first; equals in the order they came."""
    async with serve(reward(params=script.gated, max_batch_size=1)) as caller:
        calls = [caller.start(item("first"))]
        await until(lambda: script.seen == ["first"])
        for count, (text, priority) in enumerate([("e", 9), ("b", 5), ("c", 5), ("a", 0), ("d", 6)], 1):
            calls.append(caller.start(item(text), priority=priority))
            await until(lambda expected=count: caller.queued() == expected)
        script.open_gate()
        for call in calls:
            assert (await call).status == 200
    assert script.seen == ["first", "a", "b", "c", "d", "e"]


async def test_a_busy_replica_gets_nothing_while_another_is_free(serve, reward, item, script, until) -> None:
    """Work waits in the queue, not behind a replica: a stuck one costs one item, not every second one."""
    release = script.folder / "stuck"
    async with serve(reward(params=script.params, num_replicas=2, max_batch_size=1)) as caller:
        stuck = caller.start(item(f"until:{release}"))
        await until(lambda: len(script.seen) == 1)
        for n in range(10):
            assert (await caller.score(item(f"{n}"))).results == [{"s": {"value": 1.0}}]
        assert not stuck.done()
        release.touch()
        assert (await stuck).results == [{"s": {"value": 1.0}}]


async def test_max_concurrency_lets_one_replica_hold_several_batches(serve, reward, item, script, until) -> None:
    """Two threads of one process score at once."""
    async with serve(reward(params=script.gated, max_concurrency=2, max_batch_size=1)) as caller:
        calls = [caller.start(item(f"{n}")) for n in range(3)]
        await until(lambda: len(script.seen) == 2)
        assert caller.queued() == 1
        script.open_gate()
        for call in calls:
            assert (await call).results == [{"s": {"value": 1.0}}]


async def test_max_wait_holds_a_small_batch_back(serve, reward, item, script, until) -> None:
    """With max_wait_ms an idle replica waits for the batch to fill; a full one leaves at once."""
    minutes = 600_000
    async with serve(reward(params=script.params, max_batch_size=3, max_wait_ms=minutes)) as caller:
        calls = [caller.start(item("a")), caller.start(item("b"))]
        await until(lambda: caller.queued() == 2)
        assert script.seen == []
        calls.append(caller.start(item("c")))
        for call in calls:
            assert (await call).results == [{"s": {"value": 1.0}}]
    assert {size for size, _ in script.calls} == {3}


async def test_max_wait_ends(serve, reward, item, script) -> None:
    """A batch that never fills is scored all the same."""
    async with serve(reward(params=script.params, max_batch_size=3, max_wait_ms=20)) as caller:
        assert (await caller.score(item("a"), item("b"))).results == [{"s": {"value": 1.0}}] * 2
    assert {size for size, _ in script.calls} == {2}


async def test_rewards_do_not_wait_for_each_other(serve, reward, item, script, until) -> None:
    """A slow reward's queue holds up nobody who does not ask for it."""
    async with serve(reward(params=script.gated), reward("quick", "Noop")) as caller:
        slow = caller.start(item("xx", "s", "quick"))
        await until(lambda: script.seen == ["xx"])
        assert (await caller.score(item("xxx", "quick"))).results == [{"quick": {"noop": 3.0}}]
        script.open_gate()
        assert (await slow).results == [{"s": {"value": 1.0}, "quick": {"noop": 2.0}}]


@pytest.mark.parametrize("same", [True, False])
async def test_equal_images_of_a_request_are_decoded_once(serve, reward, item, picture, script, until, same) -> None:
    """Sixteen samples of one picture cost the memory of one, also for two rewards; different ones do not."""
    size = (64, 64)
    pictures = [picture((0 if same else n, 0, 0), size) for n in range(16)]
    rewards = (reward(params=script.gated), reward("sum", "Checksum"))
    async with serve(*rewards) as caller:
        call = caller.start(*(item("x", "s", "sum", image=image) for image in pictures))
        await until(lambda: caller.queued() + len(script.seen) == 16 and caller.queued("sum") == 0)
        assert caller.gateway.arena.used == 64 * 64 * 3 * (1 if same else 16)
        script.open_gate()
        answer = await call
    assert len({result["sum"]["image"] for result in answer.results}) == (1 if same else 16)
