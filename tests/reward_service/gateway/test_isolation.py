"""One bad item never hurts its neighbours, whatever it does to the scorer."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

FINE = {"s": {"value": 1.0}}


async def batch_of(caller, item, script, until, texts, slots=1):
    """Score *texts* as one batch: they queue up behind items that fill the *slots*, and leave together."""
    first = []
    for count in range(1, slots + 1):
        first.append(caller.start(item("first")))
        await until(lambda expected=count: len(script.seen) == expected)
    calls = [caller.start(item(text)) for text in texts]
    await until(lambda: caller.queued() == len(texts))
    script.open_gate()
    for call in first:
        assert (await call).results == [FINE]
    answers = [await call for call in calls]
    assert script.calls[slots][0] == len(texts), "the items were to leave as one batch"
    return [(answer.results[0], answer.errors[0].get("s")) for answer in answers]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("raise", "ValueError('asked to raise')"),
        ("text", "TypeError(\"sub-metric 'value' is 'great' (str), not a number\")"),
        ("bool", "TypeError(\"sub-metric 'value' is True (bool), not a number\")"),
        ("none", "TypeError(\"sub-metric 'value' is None (NoneType), not a number\")"),
        ("empty", "TypeError('a result has no sub-metric')"),
        ("short", "ValueError('score() returned 0 results for 1 items')"),
        ("long", "ValueError('score() returned 2 results for 1 items')"),
        ("nothing", "TypeError('score() returned NoneType; expected a list with one dict per item')"),
        ("surrogate", "ValueError('asked to raise ?')"),
    ],
)
async def test_a_bad_item_in_a_batch_fails_alone(serve, reward, item, script, until, bad, error) -> None:
    """Raising, wrong shapes and what is no number cost the guilty item a typed error and shift no score."""
    texts = [f"{n}" for n in range(7)]
    texts.insert(3, bad)
    async with serve(reward(params=script.gated)) as caller:
        answers = await batch_of(caller, item, script, until, texts)
        assert caller.gateway.groups["s"].replicas[0].restarts == 0
    assert answers.pop(3) == ({}, error)
    assert answers == [(FINE, None)] * 7


@pytest.mark.parametrize(("bad", "word"), [("nan", "nan"), ("inf", "inf")])
async def test_a_score_that_is_not_finite_is_null_and_named(serve, reward, item, script, until, bad, word) -> None:
    """JSON null in the result, the sub-metric's name and value in the errors, for that item alone."""
    async with serve(reward(params=script.gated)) as caller:
        answers = await batch_of(caller, item, script, until, ["a", bad, "b"])
    assert answers == [
        (FINE, None),
        ({"s": {"value": None}}, f"ValueError('not finite: value = {word}')"),
        (FINE, None),
    ]


async def test_out_of_memory_halves_the_batch_and_remembers(serve, reward, item, script, until) -> None:
    """No item fails, and later batches have the size that worked."""
    async with serve(reward(params=script.gated, max_batch_size=16)) as caller:
        answers = await batch_of(caller, item, script, until, ["oom:5"] * 16)
        assert answers == [(FINE, None)] * 16
        assert [size for size, _ in script.calls][1:] == [16] * 16 + [8] * 8 + [4] * 16
        before = len(script.calls)
        again = await caller.score(*(item("oom:5") for _ in range(40)))
        assert again.results == [FINE] * 40
        assert max(size for size, _ in script.calls[before:]) <= 4


@pytest.mark.parametrize("poison", ["exit", "kill", "sysexit"])
@pytest.mark.parametrize("threads", [1, 2])
async def test_an_item_that_kills_the_process_fails_alone(serve, reward, item, script, until, poison, threads) -> None:
    """The process is restarted, the neighbours are scored, the guilty one is named dead."""
    async with serve(reward(params=script.gated, max_concurrency=threads)) as caller:
        texts = [f"{n}" for n in range(15)]
        texts.insert(4, poison)
        answers = await batch_of(caller, item, script, until, texts, threads)
        assert answers.pop(4) == ({}, "ReplicaDied(\"the scorer process of 's' died twice with this item\")")
        assert answers == [(FINE, None)] * 15
        assert (await caller.score(item("after"))).results == [FINE]
        assert caller.gateway.groups["s"].replicas[0].restarts == 2


async def test_two_batches_in_one_process_do_not_hurt_each_other(serve, reward, item, script, until) -> None:
    """With several batches in flight, those that die with a poisoned one are tried again apart from it."""
    async with serve(reward(params=script.gated, max_concurrency=2, max_batch_size=8)) as caller:
        first = [caller.start(item("first")), caller.start(item("first"))]
        await until(lambda: len(script.seen) == 2)
        texts = [f"{n}" for n in range(15)]
        texts.insert(4, "exit")
        calls = [caller.start(item(text)) for text in texts]
        await until(lambda: caller.queued() == 16)
        script.open_gate()
        failed = [text for text, call in zip(texts, calls, strict=True) if (await call).errors[0]]
        for call in first:
            assert (await call).results == [FINE]
    assert failed == ["exit"]


async def test_a_process_that_is_killed_under_load_loses_nothing(serve, reward, item, script, until) -> None:
    """With one replica, what it held and what waits is scored after the restart."""
    async with serve(reward(params=script.gated, max_batch_size=4)) as caller:
        calls = [caller.start(item(f"{n}")) for n in range(20)]
        await until(lambda: caller.queued() <= 19 and len(script.seen) >= 1 and caller.gateway.requests == 20)
        os.kill(caller.scorer_pids()[0], signal.SIGKILL)
        script.open_gate()
        for call in calls:
            assert (await call).results == [FINE]
        assert caller.gateway.groups["s"].replicas[0].restarts == 1


async def test_another_replica_takes_over(serve, reward, item, script, until) -> None:
    """With two replicas the second one scores what the first one held, before that one is back."""
    release = script.folder / "release"
    async with serve(reward(params=script.params, num_replicas=2, max_batch_size=1)) as caller:
        stuck = caller.start(item(f"until:{release}"))
        await until(lambda: len(script.seen) == 1)
        group = caller.gateway.groups["s"]
        (busy,) = [replica for replica in group.replicas if not replica.link.free_slots]
        os.kill(busy.pid, signal.SIGKILL)
        await until(lambda: len(script.seen) == 2)
        assert busy.link is None or busy.link.free_slots
        release.touch()
        assert (await stuck).results == [FINE]
        for n in range(10):
            assert (await caller.score(item(f"{n}"))).results == [FINE]
        await until(lambda: all(replica.link for replica in group.replicas))
        assert (busy.restarts, group.ready) == (1, True)


async def test_what_a_scorer_started_goes_with_it(serve, reward, item, tmp_path, monkeypatch, until) -> None:
    """Engine workers and data loaders of a scorer that is killed do not stay behind."""
    (tmp_path / "parent.py").write_text(
        "import subprocess\n"
        "class Parent:\n"
        "    def __init__(self):\n"
        "        self.child = subprocess.Popen(['sleep', '3600'])\n"
        "    def score(self, items):\n"
        "        return [{'pid': self.child.pid} for _ in items]\n"
    )
    monkeypatch.chdir(tmp_path)
    async with serve({**reward("p"), "scorer": "parent:Parent"}) as caller:
        answer = await caller.score(item("x", "p"))
        child = psutil.Process(int(answer.results[0]["p"]["pid"]))
        os.kill(caller.scorer_pids("p")[0], signal.SIGKILL)
        await until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)
        await until(lambda: caller.gateway.groups["p"].ready)
        again = await caller.score(item("x", "p"))
    assert again.results[0]["p"]["pid"] != answer.results[0]["p"]["pid"]
