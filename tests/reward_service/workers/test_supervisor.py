"""A supervisor keeps one scorer process alive, reports what happens to it, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from reward_service.workers.spec import ReplicaSpec
from reward_service.workers.supervisor import Supervisor

SCRIPTED = "reward_service.testing.scorers:Scripted"


def make(scorer: str = SCRIPTED, params: dict[str, Any] | None = None, **fields: Any) -> Supervisor:
    # A gateway that is not there: the process keeps trying to reach it for a while.
    gateway = ["unix", "/nonexistent/gateway.sock", "token"]
    spec = ReplicaSpec("s", 0, scorer, params or {}, (gateway,), sys_path=(os.getcwd(),), **fields)
    return Supervisor(spec)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def test_a_process_that_dies_is_started_again_and_one_that_is_stopped_is_not() -> None:
    """Each death is reported with its cause; `stop` ends the last process and `run`."""
    supervisor = make()
    running = asyncio.create_task(supervisor.run())
    pids = []
    for number in (signal.SIGKILL, signal.SIGSEGV):
        await until(lambda: supervisor.state["state"] == "ready" and supervisor.state["pid"] not in pids)
        pids.append(supervisor.state["pid"])
        os.kill(pids[-1], number)
        await until(lambda: supervisor.state["state"] == "restarting")
        assert supervisor.state["reason"] == f"the scorer process was killed by {number.name}"
    await until(lambda: supervisor.state["state"] == "ready")
    pids.append(supervisor.state["pid"])
    supervisor.stop()
    await running
    assert len(set(pids)) == 3
    assert all(is_gone(pid) for pid in pids)


async def test_a_process_that_is_stopped_closes_its_scorer(tmp_path) -> None:
    """The orderly end runs the scorer's close."""
    supervisor = make(params={"hooks": str(tmp_path / "hooks")})
    running = asyncio.create_task(supervisor.run())
    await until(lambda: supervisor.state["state"] == "ready")
    supervisor.stop()
    await running
    assert (tmp_path / "hooks").read_text().split() == ["built", "warmup", "close"]


@pytest.mark.parametrize("stage", ["loading", "restarting", "failed"])
async def test_stop_works_at_every_stage(tmp_path, stage) -> None:
    """While the model loads, between two tries, and after the last one."""
    params = {"build_after": str(tmp_path / "never")} if stage == "loading" else {"fail": "no"}
    supervisor = make(params=params, max_start_attempts=1 if stage == "failed" else 100)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: supervisor.state["state"] == stage)
    children = psutil.Process().children()
    supervisor.stop()
    await asyncio.wait_for(running, 30)
    assert all(is_gone(child.pid) for child in children)


STUBBORN = """
import subprocess, sys
class Stubborn:
    def __init__(self, pids):
        child = subprocess.Popen(["sleep", "3600"], start_new_session={own_session})
        with open(pids, "a") as file:
            print(child.pid, file=file)
        print("a word on stderr", file=sys.stderr)
        {then}
    def score(self, items):
        return [{{"a": 1.0}} for _ in items]
"""


@pytest.mark.parametrize("own_session", [False, True])
@pytest.mark.parametrize("then", ["pass", "raise RuntimeError('no')", "import os; os._exit(3)"])
async def test_children_that_hold_the_pipes_do_not_hide_the_end(tmp_path, monkeypatch, own_session, then) -> None:
    """A scorer's own children inherit its stderr; its death is noticed, and those in its session go with it."""
    (tmp_path / "stubborn.py").write_text(STUBBORN.format(own_session=own_session, then=then))
    monkeypatch.chdir(tmp_path)
    supervisor = make("stubborn:Stubborn", {"pids": str(tmp_path / "pids")}, max_start_attempts=1)
    running = asyncio.create_task(supervisor.run())
    try:
        if then == "pass":
            await until(lambda: supervisor.state["state"] == "ready")
            os.kill(supervisor.state["pid"], signal.SIGKILL)
            await until(lambda: supervisor.state["state"] == "restarting")
        else:
            await until(lambda: supervisor.state["state"] == "failed")
        supervisor.stop()
        await asyncio.wait_for(running, 30)
        children = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        assert all(is_gone(pid) for pid in children) is not own_session
    finally:
        for pid in (tmp_path / "pids").read_text().split():
            if not is_gone(int(pid)):
                os.kill(int(pid), signal.SIGKILL)


async def test_the_last_words_of_a_process_are_kept(tmp_path, monkeypatch) -> None:
    """What it wrote to stderr before it crashed is the reason's detail, however long its lines are."""
    (tmp_path / "chatty.py").write_text(
        "import os, sys\nclass Chatty:\n    def __init__(self):\n"
        "        sys.stderr.write('y' * 3_000_000 + '\\n')\n        print('on stdout')\n"
        "        os.write(2, b'\\xff last words\\n')\n        os._exit(3)\n    score = print\n"
    )
    monkeypatch.chdir(tmp_path)
    supervisor = make("chatty:Chatty", max_start_attempts=1)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: supervisor.state["state"] == "failed")
    assert supervisor.state["traceback"].splitlines()[-2:] == ["on stdout", "\N{REPLACEMENT CHARACTER} last words"]
    supervisor.stop()
    await running


async def test_an_interpreter_that_does_not_exist_is_a_reason(monkeypatch) -> None:
    """No traceback of ours, but the path and what the system said."""
    monkeypatch.setattr("sys.executable", "/no/such/python")
    supervisor = make(max_start_attempts=1)
    running = asyncio.create_task(supervisor.run())
    await until(lambda: supervisor.state["state"] == "failed")
    assert supervisor.state["reason"] == "cannot start /no/such/python: No such file or directory"
    supervisor.stop()
    await running
