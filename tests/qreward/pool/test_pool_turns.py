"""Who is served next, and where a task goes after it failed; in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from qreward.client.pool import CallableSource, ComputePool, OpenAISource
from qreward.errors import DeadlineExceeded
from qreward.testing import FakeJudge, Reply, eventually
from qreward.testing.virtual import run_virtual

Func = Callable[[Any], Awaitable[Any]]


def taking(seconds: float, served: list[Any] | None = None) -> Func:
    async def func(payload: Any) -> Any:
        if served is not None:
            served.append(payload)
        await asyncio.sleep(seconds)
        return payload

    return func


def now() -> float:
    return asyncio.get_running_loop().time()


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


async def test_a_model_with_many_tasks_does_not_starve_another() -> None:
    """Tasks for two models that share a busy server take turns by priority, whichever model came first."""
    async with FakeJudge() as judge:
        source = OpenAISource("a", judge.url, api_key="k", max_concurrent=1)
        async with ComputePool([source]) as pool:
            many = [asyncio.create_task(pool.chat_completion(ask(f"many {i}"), "m", priority=9)) for i in range(30)]
            await asyncio.sleep(0)
            few = [asyncio.create_task(pool.chat_completion(ask(f"few {i}"), "other", priority=0)) for i in range(5)]
            await asyncio.gather(*many, *few)
    order = [arrival.text.split()[0] for arrival in judge.counters.arrivals]
    assert order[:8].count("few") == 5


def test_a_patient_task_does_not_block_an_urgent_one() -> None:
    """A task that waits for a free source keeps none with a deadline from a paid one, however old it is."""

    async def main() -> None:
        free = CallableSource("free", taking(300.0), max_concurrent=1)
        pool = ComputePool([free, CallableSource("paid", taking(0.3), price_per_call=1.0)])
        patient = [asyncio.create_task(pool.call(i)) for i in range(3)]
        await asyncio.sleep(100.0)
        assert await pool.call("urgent", deadline_s=5.0) == "urgent"
        assert await asyncio.gather(*patient) == [0, 1, 2]
        assert [s["done"] for s in pool.snapshot()["sources"]] == [3, 1]

    run_virtual(main())


def test_a_task_returns_to_where_it_failed_when_nobody_else_is_there() -> None:
    """One failure at the only source in service is repeated there soon, not when the others are back."""
    failed: list[float] = []

    async def shaky(payload: str) -> str:
        if payload == "x" and not failed:
            failed.append(now())
            raise ConnectionResetError("once")
        return payload

    async def gone(payload: str) -> str:
        raise ConnectionRefusedError("nobody listens")

    async def main() -> float:
        pool = ComputePool([CallableSource("shaky", shaky), CallableSource("gone", gone, weight=1000.0)])
        assert await pool.call("w") == "w"  # refused there: it is out of service now
        assert await pool.call("x") == "x"
        return now() - failed[0]

    assert run_virtual(main()) < 0.5


def test_a_task_that_waits_for_another_source_blocks_nobody() -> None:
    """A task that failed here and waits for a place elsewhere does not keep others from this source."""

    async def shaky(payload: str) -> str:
        if payload == "fails":
            raise ConnectionResetError("always")
        return payload

    async def main() -> None:
        slow = CallableSource("slow", taking(4.0), max_concurrent=1, weight=1000.0)  # short of hanging
        pool = ComputePool([slow, CallableSource("shaky", shaky)])
        first = [asyncio.create_task(pool.call(name)) for name in ("long", "fails")]
        await asyncio.sleep(1.0)
        assert await pool.call("other", deadline_s=1.0) == "other"
        assert await asyncio.wait_for(pool.call("another"), 1.0) == "another"
        assert await asyncio.gather(*first) == ["long", "fails"]

    run_virtual(main())


def test_tasks_that_take_long_everywhere_are_left_alone() -> None:
    """When all answers suddenly take far longer than before, nobody hangs: no task is given up or made twice."""
    seconds, begun = 0.05, []

    async def func(payload: int) -> int:
        begun.append(payload)
        await asyncio.sleep(seconds)
        return payload

    async def main() -> None:
        nonlocal seconds
        pool = ComputePool([CallableSource(name, func, max_concurrent=10) for name in "ab"])
        await asyncio.gather(*(pool.call(i) for i in range(100)))
        begun.clear()
        seconds = 30.0
        assert await asyncio.gather(*(pool.call(i) for i in range(60))) == list(range(60))

    run_virtual(main())
    assert sorted(begun) == list(range(60))


def test_one_long_task_gets_the_time_that_it_needs() -> None:
    """A task that looks stuck moves with growing patience, and is answered although it is very long."""

    async def func(payload: float) -> float:
        await asyncio.sleep(payload)
        return payload

    async def main() -> None:
        pool = ComputePool([CallableSource(name, func, max_concurrent=2) for name in "abc"])
        await asyncio.gather(*(pool.call(0.05) for _ in range(100)))
        long = asyncio.create_task(pool.call(12.0))
        while not long.done():
            await pool.call(0.05)
        assert await long == 12.0
        assert sum(s["failures"] for s in pool.snapshot()["sources"]) <= 3

    run_virtual(main())


def test_a_hang_is_seen_after_few_answers_too() -> None:
    """Before twenty answers are known, a source that answers nothing is given up after some seconds."""

    async def hangs(payload: int) -> int:
        await asyncio.Event().wait()
        return payload

    async def main() -> float:
        pool = ComputePool([CallableSource("a", hangs), CallableSource("b", taking(0.1))])
        began = now()
        assert await asyncio.gather(*(pool.call(i) for i in range(6))) == list(range(6))
        return now() - began

    assert 4.0 < run_virtual(main()) < 8.0


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_a_key_or_model_that_one_source_refuses_is_tried_elsewhere(status: int) -> None:
    """What one source's account forbids another may allow; where there is no other, the error is raised at once."""
    async with FakeJudge() as refusing, FakeJudge() as other:
        bad = OpenAISource("bad", refusing.url, api_key="k", weight=1000.0)
        async with ComputePool([bad, OpenAISource("good", other.url, api_key="k")]) as pool:
            refusing.script(*[Reply(status)] * 10)
            for i in range(10):
                assert await pool.chat_completion(ask(str(i)), "m") == f"echo:{i}"
            ejected = pool.snapshot()["sources"][0]["state"] != "healthy"
        assert ejected == (status in (401, 402))
        assert (refusing.counters.received < 10) == ejected
        refusing.reset()
        refusing.script(Reply(status))
        async with ComputePool([OpenAISource("bad", refusing.url, api_key="k")]) as pool:
            with pytest.raises(Exception, match=str(status)):
                await pool.chat_completion(ask("x"), "m")
        assert refusing.counters.received == 1


async def test_a_stream_leaves_a_source_that_hangs() -> None:
    """A stream whose first piece does not come is read from another source."""
    async with FakeJudge() as stuck, FakeJudge() as other:
        sources = [OpenAISource("a", stuck.url, api_key="k"), OpenAISource("b", other.url, api_key="k")]
        async with ComputePool(sources) as pool:
            await pool.batch_chat_completion([ask(str(i)) for i in range(60)], "m")
            stuck.faults.set(dead="hang")
            streams = [pool.stream_chat_completion(ask(f"s{i}"), "m", deadline_s=20) for i in range(4)]

            async def text(stream: Any) -> str:
                return "".join([piece async for piece in stream])

            assert await asyncio.gather(*map(text, streams)) == [f"echo:s{i}" for i in range(4)]
            await eventually(lambda: stuck.counters.client_gone)


def test_a_deadline_that_passes_says_when_sources_return() -> None:
    """DeadlineExceeded names the state of every source, and in how many seconds it is back."""

    async def gone(payload: str) -> str:
        raise ConnectionRefusedError("nobody listens")

    async def main() -> None:
        pool = ComputePool([CallableSource("f", gone)])
        with pytest.raises(DeadlineExceeded, match=r"within 2 s; sources: f ejected \(back in [\d.]+ s\)"):
            await pool.call("x", deadline_s=2.0)

    run_virtual(main())
