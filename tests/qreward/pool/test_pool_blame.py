"""What speaks against a source of a pool, and for how long."""

from __future__ import annotations

import asyncio

import pytest

from qreward.client.pool import CallableSource, ComputePool
from qreward.testing.virtual import run_virtual


def states(pool: ComputePool) -> dict[str, tuple[str, float]]:
    return {s["name"]: (s["state"], s["returns_in_s"]) for s in pool.snapshot()["sources"]}


def test_many_tasks_stuck_at_once_are_one_hang() -> None:
    """A source that stops in the middle of a batch loses none of it; however many it kept, its first pause is 1 s."""
    stuck = False

    async def hangs(text: str) -> str:
        await (asyncio.Event().wait() if stuck else asyncio.sleep(0.01))
        return text

    async def works(text: str) -> str:
        await asyncio.sleep(0.01)
        return text

    async def main() -> None:
        nonlocal stuck
        pool = ComputePool([CallableSource("a", hangs, max_concurrent=8), CallableSource("b", works, max_concurrent=8)])
        await asyncio.gather(*(pool.call("x") for _ in range(100)))
        batch = asyncio.gather(*(pool.call("y") for _ in range(200)))
        await asyncio.sleep(0.055)
        stuck = True
        assert await batch == ["y"] * 200
        assert pool.snapshot()["sources"][0]["failures"] == 8
        state, back = states(pool)["a"]
        assert state == "ejected"
        assert 0.5 < back <= 1.0

    run_virtual(main())


def test_a_cancelled_task_does_not_free_the_slot_of_the_probe() -> None:
    """While one task probes a source, giving up another that was stuck there sends it no second probe."""
    running = 0

    async def hangs(text: str) -> str:
        nonlocal running
        running += 1
        try:
            if text == "down":
                raise ConnectionRefusedError("down")
            await asyncio.Event().wait()
        finally:
            running -= 1
        return text

    async def main() -> None:
        pool = ComputePool([CallableSource("a", hangs, max_concurrent=8)], max_attempts=1)
        stuck = asyncio.create_task(pool.call("x"))
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionRefusedError):
            await pool.call("down")
        waiting = [asyncio.create_task(pool.call("y")) for _ in range(3)]
        await asyncio.sleep(2.0)
        assert running == 2
        stuck.cancel()
        await asyncio.sleep(1.0)
        assert running == 1
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run_virtual(main())


def test_a_function_that_refuses_a_payload_stays_in_service() -> None:
    """Its own exceptions are about the payload, a lost connection is about what stands behind it."""

    async def picky(payload: object) -> object:
        if payload == "lost":
            raise ConnectionResetError("gone")
        if payload == "bad":
            raise ValueError("no number in it")
        return payload

    async def main() -> None:
        pool = ComputePool([CallableSource("f", picky)], max_attempts=1)
        for _ in range(20):
            with pytest.raises(ValueError, match="no number"):
                await pool.call("bad")
        assert states(pool)["f"] == ("healthy", 0.0)
        for _ in range(3):
            with pytest.raises(ConnectionResetError):
                await pool.call("lost")
        assert states(pool)["f"][0] == "ejected"
        assert await pool.call("good") == "good"

    run_virtual(main())
