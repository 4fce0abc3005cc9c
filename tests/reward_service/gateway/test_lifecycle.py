"""A scorer's life: constructed, warmed up, served, closed; or given up with a reason while the rest serves."""

from __future__ import annotations

from pathlib import Path

import pytest


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(("warmup", "expected"), [(True, ["built", "warmup"]), (False, ["built"])])
async def test_a_scorer_is_warmed_up_before_it_serves_and_closed_at_the_end(
    serve, reward, item, tmp_path, warmup, expected
) -> None:
    """`warmup` runs once before ready, unless the config says no; `close` runs once when the service ends."""
    hooks = tmp_path / "hooks"
    async with serve(reward(params={"hooks": str(hooks)}, warmup=warmup)) as caller:
        assert lines(hooks) == expected
        await caller.score(item())
        assert lines(hooks) == expected
    assert lines(hooks) == [*expected, "close"]


async def test_a_service_that_starts_says_so_and_takes_work(serve, reward, item, tmp_path, until) -> None:
    """While a model loads, health says starting with 503, and requests wait for it in the queue."""
    built = tmp_path / "built"
    async with serve(reward(params={"build_after": str(built)}), settled=False) as caller:
        await until(lambda: caller.gateway.groups["s"].replicas[0].state == "loading")
        health = await caller.get("/health")
        assert (health.status, health.body["status"]) == (503, "starting")
        assert health.body["rewards"] == {"s": ["reward_service.testing.scorers:Scripted:loading"]}
        assert (await caller.get("/readyz")).status == 503
        assert (await caller.get("/livez")).status == 200
        early = caller.start(item())
        await until(lambda: caller.queued() == 1)
        built.touch()
        assert (await early).results == [{"s": {"value": 1.0}}]
        assert (await caller.get("/health")).status == 200


async def test_a_constructor_that_keeps_failing_is_given_up_and_the_others_serve(serve, reward, item) -> None:
    """The reward is failed with its reason; its items fail at once, typed; nobody else notices."""
    broken = reward("broken", params={"fail": "no weights here"}, max_start_attempts=2)
    async with serve(broken, reward("good", "Noop")) as caller:
        health = await caller.get("/health")
        assert (health.status, health.body["status"]) == (503, "failed")
        (replica,) = health.body["details"]["broken"]["replicas"]
        assert (replica["state"], replica["reason"]) == ("failed", "RuntimeError: no weights here")
        assert replica["restarts"] == 1
        answer = await caller.score(item("xx", "broken", "good"))
        assert answer.results == [{"good": {"noop": 2.0}}]
        assert answer.errors == [{"broken": "RewardFailed(\"reward 'broken' could not be started; see GET /health\")"}]


async def test_an_optional_reward_that_fails_leaves_the_service_ready(serve, reward) -> None:
    """`required: false` turns failed into degraded, which is 200."""
    broken = reward("broken", params={"fail": "no"}, max_start_attempts=1, required=False)
    async with serve(broken, reward("good", "Noop")) as caller:
        health = await caller.get("/health")
        assert (health.status, health.body["status"]) == (200, "degraded")
        assert (await caller.get("/readyz")).status == 200


async def test_items_that_wait_for_a_reward_that_fails_are_answered(serve, reward, item, script, until) -> None:
    """Those that queued while it tried to start do not wait for their deadline."""
    broken = reward("broken", params={"build_after": str(script.folder / "gate"), "x": 1}, max_start_attempts=1)
    broken["params"] = {"build_after": str(script.folder / "gate"), "hooks": "/nonexistent/hooks"}
    async with serve(broken, settled=False) as caller:
        early = caller.start(item("x", "broken"))
        await until(lambda: caller.queued("broken") == 1)
        script.open_gate()
        assert (await early).errors[0]["broken"].startswith("RewardFailed(")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"params": {"recrod": "x"}},
            "TypeError: scorer 'reward_service.testing.scorers:Scripted' has no parameter 'recrod'; "
            "it takes: record, wait_for, fail, build_after, hooks",
        ),
        ({"scorer": "reward_service.testing.scorers:Nope"}, "reward_service.testing.scorers has no class 'Nope'"),
        ({"scorer": "no_such_module:Scorer"}, "No module named 'no_such_module'"),
    ],
)
async def test_a_reward_that_cannot_be_built_says_why(serve, reward, fields, words) -> None:
    """Unknown parameters are named beside those that exist; so are classes and modules that do not exist."""
    async with serve({**reward(max_start_attempts=1), **fields}) as caller:
        (replica,) = (await caller.get("/health")).body["details"]["s"]["replicas"]
    assert words in replica["reason"]


async def test_a_process_that_dies_while_it_loads_is_reported(serve, reward, tmp_path, monkeypatch) -> None:
    """Also one that leaves without a word from Python."""
    (tmp_path / "dies.py").write_text(
        "import os\nclass Dies:\n    def __init__(self): os._exit(9)\n    score = print\n"
    )
    monkeypatch.chdir(tmp_path)
    async with serve({**reward(max_start_attempts=1), "scorer": "dies:Dies"}) as caller:
        (replica,) = (await caller.get("/health")).body["details"]["s"]["replicas"]
    assert (replica["state"], replica["reason"]) == ("failed", "the scorer process exited with code 9")


async def test_a_start_that_never_ends_is_given_up(serve, reward, tmp_path) -> None:
    """start_timeout_s bounds the constructor."""
    slow = reward(params={"build_after": str(tmp_path / "never")}, start_timeout_s=0.5, max_start_attempts=1)
    async with serve(slow) as caller:
        (replica,) = (await caller.get("/health")).body["details"]["s"]["replicas"]
    assert replica["reason"] == "not ready after start_timeout_s = 0.5 s"


async def test_a_service_that_drains_takes_no_new_work(serve, reward, item, script, until) -> None:
    """New requests get 503 with Retry-After; those in flight are finished."""
    async with serve(reward(params=script.gated)) as caller:
        running = caller.start(item())
        await until(lambda: script.seen == ["a prompt"])
        caller.gateway.draining = True
        refused = await caller.score(item())
        assert (refused.status, refused.headers["retry-after"]) == (503, "30")
        health = await caller.get("/health")
        assert (health.status, health.body["status"]) == (503, "draining")
        script.open_gate()
        assert (await running).results == [{"s": {"value": 1.0}}]
