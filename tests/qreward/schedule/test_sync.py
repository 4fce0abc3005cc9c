"""Synchronous functions: threads, timeouts, hedges, contexts, forks."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from qreward.testing import Delay, FakeJudge
from qreward.utils import schedule

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("VAR", default="unset")


def test_retries_at_the_server(threaded_judge: FakeJudge, ask_sync: Callable[[str], str]) -> None:
    """Two failures and an answer are three requests."""
    threaded_judge.script(500, "reset")
    assert schedule(retry_times=3, retry_interval=0.01)(ask_sync)("x") == "echo:x"
    assert threaded_judge.counters.received == 3


def test_a_hedge_overtakes_a_stalled_body(threaded_judge: FakeJudge, ask_sync: Callable[[str], str]) -> None:
    """A sync call is hedged like an async one; the caller does not wait for the stalled thread."""
    threaded_judge.script(Delay(5))
    assert schedule(hedged_request_time=0.05)(ask_sync)("x") == "echo:x"
    assert threaded_judge.counters.received == 2


def test_a_timeout_abandons_the_body_at_once() -> None:
    """The caller gets TimeoutError while the body still runs."""
    release, ended = threading.Event(), threading.Event()

    @schedule(timeout=0.05)
    def stuck() -> None:
        release.wait(30)
        ended.set()

    with pytest.raises(TimeoutError, match=r"execute more than 0\.05 seconds"):
        stuck()
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


def test_a_plain_body_runs_in_the_callers_thread() -> None:
    """Without timeout and hedges there is no other thread: thread-locals work."""
    assert schedule(retry_times=1)(threading.get_ident)() == threading.get_ident()


@pytest.mark.parametrize("settings", [{}, {"timeout": 30}])
def test_context_variables_reach_the_body(settings: dict[str, float]) -> None:
    """The body sees the caller's context variables, wherever it runs."""
    VAR.set("mine")
    assert schedule(**settings)(VAR.get)() == "mine"  # type: ignore[arg-type]


def test_many_callers_are_not_capped() -> None:
    """Fifty callers whose bodies wait for each other all get through."""
    barrier = threading.Barrier(50)
    ours = schedule(timeout=30)(lambda: barrier.wait(20))
    threads = [threading.Thread(target=ours) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not barrier.broken


def test_max_threads_bounds_the_bodies() -> None:
    """With max_threads=2 and six callers, two bodies run at a time."""
    running, most, lock = 0, 0, threading.Lock()
    both = threading.Event()

    @schedule(max_threads=2)
    def body() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                both.set()
        both.wait(20)
        with lock:
            running -= 1

    threads = [threading.Thread(target=body) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert most == 2


async def test_one_function_on_several_event_loops() -> None:
    """An async function with a limit works from loops in several threads at once."""
    count = 0

    @schedule(limit_size=50, limit_window=0.1, timeout=30, retry_times=2)
    async def body() -> None:
        nonlocal count
        count += 1
        await asyncio.sleep(0)

    async def many() -> None:
        await asyncio.gather(*(body() for _ in range(20)))

    await asyncio.gather(*(asyncio.to_thread(lambda: asyncio.run(many())) for _ in range(3)), many())
    assert count == 80


def test_a_forked_child_can_call() -> None:
    """After fork, sync and async functions with limits work in the child and in the parent."""
    code = """
        import asyncio, os
        from qreward.utils import schedule

        @schedule(limit_size=100, retry_times=1, timeout=20)
        def work():
            return "sync"

        @schedule(limit_size=100, timeout=20)
        async def later():
            return "async"

        work(); asyncio.run(later())
        pid = os.fork()
        if pid:
            print(os.waitpid(pid, 0)[1])
        print(work(), asyncio.run(later()), flush=True)
        os._exit(0)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == ["sync async", "0", "sync async"]


def test_the_errors_of_the_body_end_the_caller_not_the_portal() -> None:
    """SystemExit and KeyboardInterrupt reach the caller, are not retried, and the next call works."""
    calls = 0

    @schedule(retry_times=3, retry_interval=0.001)
    def body(error: type[BaseException] | None) -> str:
        nonlocal calls
        calls += 1
        if error is not None:
            raise error
        return "fine"

    for error in (SystemExit, KeyboardInterrupt):
        with pytest.raises(error):
            body(error)
    assert calls == 2
    assert body(None) == "fine"
