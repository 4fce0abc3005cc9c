"""Equal idempotency keys are scored once, answered as often as asked, and never remember what may pass."""

from __future__ import annotations

import asyncio

import pytest


async def test_a_repeated_request_is_answered_from_memory(serve, reward, item, script) -> None:
    """The second answer equals the first, errors included, and costs no forward."""
    async with serve(reward(params=script.params)) as caller:
        items = [item("x", idempotency_key="a"), item("raise", idempotency_key="b")]
        first = await caller.score(*items)
        seen = script.seen
        second = await caller.score(*items)
    assert first.errors == [{}, {"s": "ValueError('asked to raise')"}]
    assert second.body == first.body
    assert set(seen) == {"x", "raise"}
    assert script.seen == seen


async def test_a_repeat_joins_the_computation_that_runs(serve, reward, item, script, until) -> None:
    """Two requests with one key while the model works: one forward, two equal answers."""
    async with serve(reward(params=script.gated)) as caller:
        first = caller.start(item("x", idempotency_key="k"))
        await until(lambda: script.seen == ["x"])
        second = caller.start(item("other"), item("x", idempotency_key="k"))
        await until(lambda: caller.queued() == 1)
        script.open_gate()
        assert (await second).results[1] == (await first).results[0] == {"s": {"value": 1.0}}
    assert sorted(script.seen) == ["other", "x"]


async def test_duplicates_in_one_batch_are_scored_once(serve, reward, item, script) -> None:
    """And every one of them gets the answer, in its place."""
    async with serve(reward(params=script.params)) as caller:
        answer = await caller.score(*[item("x", idempotency_key="k")] * 3, item("y"))
    assert answer.results == [{"s": {"value": 1.0}}] * 4
    assert sorted(script.seen) == ["x", "y"]
    assert [identity["idempotency_key"] for identity in answer.body["identities"]] == ["k", "k", "k", None]


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"seed": 1}}, {"metadata": {"seed": 2**70}}, {"request_id": "r"}, {"policy_version": 1},
        {"history": [{"text": "x", "image_b64": "QUJD"}]}, {"required_rewards": []},
    ],
)  # fmt: skip
async def test_another_payload_under_the_same_key_is_a_conflict(serve, reward, item, script, change) -> None:
    """409, in a later request and within one batch, and nothing of that request is scored or remembered."""
    async with serve(reward(params=script.params)) as caller:
        one, other = item("x", idempotency_key="k"), {**item("x", idempotency_key="k"), **change}
        together = await caller.score(item("y", idempotency_key="fresh"), one, other)
        assert (together.status, together.detail) == (
            409,
            "idempotency_key 'k' was used with another payload",
        )
        assert script.seen == []
        assert (await caller.score(one)).status == 200
        later = await caller.score(item("y", idempotency_key="fresh"), other)
        assert later.status == 409
        assert script.seen == ["x"]
        assert (await caller.score(one)).status == 200
        assert (await caller.score({**item("z", idempotency_key="fresh")})).status == 200
    assert script.seen == ["x", "z"]


async def test_integers_beyond_64_bits_are_payload_too(serve, reward, item, script) -> None:
    """A seed of 128 bits in the metadata is told apart from another one."""
    async with serve(reward(params=script.params)) as caller:
        for seed, status in ((2**100, 200), (2**100, 200), (2**100 + 1, 409)):
            answer = await caller.score(item("x", idempotency_key="k", metadata={"seed": seed}))
            assert answer.status == status
    assert script.seen == ["x"]


async def test_a_timeout_is_not_remembered(serve, reward, item, script, until) -> None:
    """After a deadline the same key is scored anew."""
    async with serve(reward(params=script.gated)) as caller:
        late = await caller.score(item("x", idempotency_key="k"), deadline_s=0.2)
        assert late.errors == [{"s": "TimeoutError(\"reward 's' exceeded 0.2s\")"}]
        script.open_gate()
        again = await caller.score(item("x", idempotency_key="k"))
        assert again.results == [{"s": {"value": 1.0}}]
    assert script.seen == ["x", "x"]


async def test_a_dead_scorer_process_is_not_remembered(serve, item) -> None:
    """An item that was lost to a crash may be sent again under its key, with another payload even."""
    async with serve() as caller:
        lost = await caller.score(item("exit", idempotency_key="k"))
        assert lost.errors[0]["s"].startswith("ReplicaDied(")
        assert (await caller.score(item("fine", idempotency_key="k"))).results == [{"s": {"value": 1.0}}]


async def test_one_caller_that_leaves_does_not_take_the_answer_from_the_other(
    serve, reward, item, script, until
) -> None:
    """The work lives as long as anybody waits for it."""
    async with serve(reward(params=script.gated, max_batch_size=1)) as caller:
        blocking = caller.start(item("blocking"))
        await until(lambda: script.seen == ["blocking"])
        first = caller.start(item("x", idempotency_key="k"))
        await until(lambda: caller.queued() == 1)
        second = caller.start(item("x", idempotency_key="k"))
        await until(lambda: caller.gateway.requests == 3)
        first.cancel()
        await until(lambda: caller.gateway.requests == 2)
        script.open_gate()
        assert (await second).results == [{"s": {"value": 1.0}}]
        await blocking
        with pytest.raises(asyncio.CancelledError):
            await first
    assert script.seen == ["blocking", "x"]


async def test_one_callers_deadline_is_not_the_others(serve, reward, item, script, until) -> None:
    """Each request keeps its own deadline over a shared work, and the other's answer is complete."""
    slow = reward("slow", params=script.gated)
    async with serve(reward("fast", "Noop"), slow) as caller:
        patient = caller.start(item("x", "fast", "slow", idempotency_key="k"))
        await until(lambda: script.seen == ["x"])
        hasty = await caller.score(item("x", "fast", "slow", idempotency_key="k"), deadline_s=0.2)
        assert hasty.results == [{"fast": {"noop": 1.0}}]
        assert hasty.errors == [{"slow": "TimeoutError(\"reward 'slow' exceeded 0.2s\")"}]
        script.open_gate()
        assert (await patient).results == [{"fast": {"noop": 1.0}, "slow": {"value": 1.0}}]
    assert script.seen == ["x"]


async def test_an_answer_after_the_deadline_of_one_of_two_rewards_is_given_once(
    serve, reward, item, script, another_script, until
) -> None:
    """Where a shared work answers late but in time for the response, the reward has a result and no error."""
    first = reward("first", params=script.gated, timeout_s=0.3)
    second = reward("second", params=another_script.gated)
    async with serve(first, second) as caller:
        long = caller.start(item("x", "first", "second", idempotency_key="k"))
        await until(lambda: script.seen == ["x"] and another_script.seen == ["x"])
        joined = caller.start(item("x", "first", "second", idempotency_key="k"))
        await until(lambda: caller.gateway.requests == 2)
        work = caller.gateway.idempotency._entries["k"][1]
        await until(lambda: any(work in job.expired for job in work.subscribers))
        script.open_gate()
        await until(lambda: "first" not in work.pending)
        another_script.open_gate()
        answers = [await long, await joined]
    for answer in answers:
        assert not set(answer.results[0]) & set(answer.errors[0])
        assert set(answer.results[0]) | set(answer.errors[0]) == {"first", "second"}


async def test_the_memory_is_bounded(serve, reward, item, script) -> None:
    """Old answers are forgotten first; those that were asked for again stay."""
    limits = {"idempotency_cache_size": 2}
    async with serve(reward(params=script.params), limits=limits) as caller:
        for key in ("a", "b", "a", "c", "a", "b"):
            await caller.score(item(key, idempotency_key=key))
        assert len(caller.gateway.idempotency) == 2
    assert script.seen == ["a", "b", "c", "b"]
