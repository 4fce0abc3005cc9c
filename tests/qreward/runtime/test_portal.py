"""From synchronous code to the driver and back: threads, contexts, forks, interruptions."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading

import pytest

from qreward.runtime import portal as portal_module
from qreward.runtime.portal import Caller, portal, run
from qreward.runtime.threads import ThreadGroup

VAR: contextvars.ContextVar[str] = contextvars.ContextVar("VAR", default="unset")


def python(code: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    return done


def test_a_coroutine_runs_and_its_value_comes_back() -> None:
    """`run` gives the coroutine's value, or raises its own exception."""

    async def value() -> int:
        await asyncio.sleep(0)
        return 7

    async def error() -> int:
        raise KeyError("x")

    assert run(value) == 7
    with pytest.raises(KeyError):
        run(error)


def test_a_body_runs_in_the_callers_thread() -> None:
    """The caller can be asked to run the body itself: same thread, same context."""
    VAR.set("mine")
    here = threading.get_ident()

    async def main(caller: Caller) -> tuple[int, str]:
        answer: tuple[int, str] = await caller.run(lambda: (threading.get_ident(), VAR.get()))
        return answer

    assert portal().run(main) == (here, "mine")


def test_the_portal_can_be_used_from_its_own_loop() -> None:
    """Synchronous code that is called on the portal's loop and needs a portal itself does not hang."""

    async def inner() -> str:
        return "inner"

    async def outer() -> str:
        return run(inner)

    assert run(outer) == "inner"


def test_an_interrupted_caller_cancels_the_work() -> None:
    """KeyboardInterrupt in the caller's thread cancels the coroutine."""
    cancelled = threading.Event()

    async def main(caller: Caller) -> None:
        try:
            await caller.run(_interrupt)
        except BaseException:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        portal().run(main)
    assert cancelled.wait(10)
    assert run(lambda: asyncio.sleep(0, "alive")) == "alive"


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_after_fork_the_child_has_a_portal_of_its_own() -> None:
    """A child of a process that used the portal can use it too, and ends cleanly."""
    done = python("""
        import asyncio, os, sys
        from qreward.runtime.portal import run
        run(lambda: asyncio.sleep(0))
        pid = os.fork()
        if pid == 0:
            print(run(lambda: asyncio.sleep(0, "child")), flush=True)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        print(run(lambda: asyncio.sleep(0, "parent")), status)
    """)
    assert done.stdout.split() == ["child", "parent", "0"]


def test_an_abandoned_body_does_not_hold_the_process() -> None:
    """A process ends although a synchronous body that timed out would run for an hour."""
    done = python("""
        import threading
        from qreward.utils import schedule

        @schedule(timeout=0.2)
        def stuck():
            threading.Event().wait(3600)

        try:
            stuck()
        except TimeoutError as exc:
            print(exc)
    """)
    assert "execute more than 0.2 seconds" in done.stdout


async def test_threads_run_bodies_in_a_copy_of_the_context() -> None:
    """A body in a thread sees the caller's context variables and cannot change them."""
    VAR.set("outer")

    def body() -> str:
        seen = VAR.get()
        VAR.set("inner")
        return seen

    assert await ThreadGroup().run(body, contextvars.copy_context()) == "outer"
    assert VAR.get() == "outer"


async def test_there_is_no_hidden_cap_on_threads() -> None:
    """Sixty-four bodies that wait for each other all run at once."""
    barrier = threading.Barrier(64)
    group = ThreadGroup()
    context = contextvars.copy_context()
    await asyncio.gather(*(group.run(lambda: barrier.wait(30), context) for _ in range(64)))


async def test_max_threads_is_a_cap() -> None:
    """With max_threads=2, never more than two bodies run."""
    running, most = 0, 0
    lock = threading.Lock()
    release = threading.Event()

    def body() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            if running == 2:
                release.set()
        release.wait(30)
        with lock:
            running -= 1

    group = ThreadGroup(2)
    await asyncio.gather(*(group.run(body, contextvars.copy_context()) for _ in range(10)))
    assert most == 2


async def test_an_abandoned_body_keeps_its_slot_until_it_ends() -> None:
    """A cancelled wait does not let a third thread in while two bodies still run."""
    release = threading.Event()
    started = threading.Semaphore(0)
    group = ThreadGroup(1)
    context = contextvars.copy_context()

    def stuck() -> None:
        started.release()
        release.wait(30)

    first = asyncio.create_task(group.run(stuck, context))
    await asyncio.to_thread(started.acquire)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    second = asyncio.create_task(group.run(lambda: "second", context))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not second.done()
    release.set()
    assert await second == "second"


def test_idle_threads_are_reused() -> None:
    """A sequence of bodies does not start a thread for each."""
    names: set[str] = set()

    async def main() -> None:
        group = ThreadGroup()
        for _ in range(20):
            names.add(await group.run(lambda: threading.current_thread().name, contextvars.copy_context()))

    asyncio.run(main())
    assert len(names) < 20


def test_the_orphaned_portal_stays_referenced() -> None:
    """After a fork the parent's loop is kept, since closing it would close descriptors of the parent."""
    done = python("""
        import asyncio, os
        from qreward.runtime import portal as module
        module.run(lambda: asyncio.sleep(0))
        pid = os.fork()
        if pid == 0:
            os._exit(0 if len(module._orphans) == 1 and not module._portals else 1)
        print(os.waitpid(pid, 0)[1])
    """)
    assert done.stdout.strip() == "0"
    assert portal_module._orphans == []
