"""`ConfigWatcher.start`: changes arrive by themselves."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from qreward.reload import ConfigWatcher, directories
from qreward.utils.scheduler import ScheduleConfig

NEVER_S = 3600.0  # only an event can bring a change sooner
PATIENCE_S = 20.0


class Follower:
    """A configuration, and a way to wait for its next change."""

    def __init__(self) -> None:
        self.config = ScheduleConfig()
        self.changed = threading.Event()
        self.config.on_change(lambda _: self.changed.set())

    def timeout_after(self, change: Callable[[], Any]) -> float:
        """The setting after *change*. The thread's first reading may bring the first change; only an event the next."""
        self.changed.clear()
        change()
        assert self.changed.wait(PATIENCE_S), "the change was not seen"
        return self.config.timeout


@pytest.fixture
def follower() -> Follower:
    return Follower()


@pytest.fixture
def start(follower: Follower) -> Iterator[Callable[..., ConfigWatcher]]:
    started: list[ConfigWatcher] = []

    def start(*args: Any, **settings: Any) -> ConfigWatcher:
        watcher = ConfigWatcher(follower.config, *args, **{"poll_interval": NEVER_S, "cooldown": 0.0, **settings})
        started.append(watcher)
        watcher.start()
        return watcher

    yield start
    for watcher in started:
        watcher.stop()


def content(timeout: float) -> str:
    return f'{{"timeout": {timeout}}}'


Start = Callable[..., ConfigWatcher]


def test_edit_and_atomic_rename(follower: Follower, start: Start, tmp_path: Path) -> None:
    """start reads the file before it returns; an edit in place and a renamed replacement are both seen."""
    path, fresh = tmp_path / "c.json", tmp_path / "c.json.new"
    path.write_text(content(1))
    start("file", path)
    assert follower.config.timeout == 1
    assert follower.timeout_after(lambda: path.write_text(content(2))) == 2
    fresh.write_text(content(3))
    assert follower.timeout_after(lambda: fresh.replace(path)) == 3
    assert follower.timeout_after(lambda: path.write_text(content(4))) == 4


def publish(mount: Path, version: int) -> None:
    """What Kubernetes does with a mounted ConfigMap: a new directory, and the link to it renamed into place."""
    directory = mount / f"..v{version}"
    directory.mkdir()
    (directory / "c.json").write_text(content(version))
    link = mount / "..data_tmp"
    link.symlink_to(directory.name)
    link.replace(mount / "..data")


def test_symlink_swap(follower: Follower, start: Start, tmp_path: Path) -> None:
    """A link swapped somewhere on the way to the file is seen, again and again."""
    publish(tmp_path, 1)
    path = tmp_path / "c.json"
    path.symlink_to("..data/c.json")
    start("file", path)
    for version in 2, 3:
        assert follower.timeout_after(lambda: publish(tmp_path, version)) == version  # noqa: B023 - called at once


def test_file_behind_a_link_elsewhere(follower: Follower, start: Start, tmp_path: Path) -> None:
    """An edit of the file that a link in another directory leads to is seen."""
    (tmp_path / "a").mkdir()
    target = tmp_path / "a" / "real.json"
    target.write_text(content(1))
    (tmp_path / "b").mkdir()
    path = tmp_path / "b" / "c.json"
    path.symlink_to(target)
    start("file", path)
    for timeout in 2, 3:
        assert follower.timeout_after(lambda: target.write_text(content(timeout))) == timeout  # noqa: B023


def test_directories_ends_at_a_loop_of_links(tmp_path: Path) -> None:
    """Links that lead to each other do not hang the watcher."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert directories(tmp_path / "a") == [os.path.realpath(tmp_path)]


def test_without_watchfiles(follower: Follower, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no file system events the file is read at intervals."""
    monkeypatch.setitem(sys.modules, "watchfiles._rust_notify", None)
    path = tmp_path / "c.json"
    path.write_text(content(1))
    start("file", path, poll_interval=0.02)
    assert follower.timeout_after(lambda: path.write_text(content(2))) == 2


def test_a_directory_that_comes_later(follower: Follower, start: Start, tmp_path: Path) -> None:
    """A file in a directory that does not exist yet is found at the interval, and watched from then on."""
    path = tmp_path / "later" / "c.json"
    start("file", path, poll_interval=0.02)
    path.parent.mkdir()
    assert follower.timeout_after(lambda: path.write_text(content(2))) == 2


def test_cooldown_ends_by_itself(follower: Follower, start: Start, tmp_path: Path) -> None:
    """A change within the cooldown is applied when it is over, without another event or reading interval."""
    path = tmp_path / "c.json"
    path.write_text(content(1))
    start("file", path, cooldown=0.3)
    for timeout in 2, 3:
        assert follower.timeout_after(lambda: path.write_text(content(timeout))) == timeout  # noqa: B023


def test_callback_that_fails_in_between(follower: Follower, start: Start) -> None:
    """An exception in the callback is reported and the next reading goes on."""
    answers: list[Any] = [RuntimeError("down"), {"timeout": 2}]
    told: list[Exception] = []

    def callback() -> Any:
        answer = answers.pop(0) if answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert follower.timeout_after(lambda: start(callback=callback, poll_interval=0.02, on_error=told.append)) == 2
    assert [str(error) for error in told] == ["down"]


async def test_async_callback_on_the_thread(follower: Follower) -> None:
    """A watcher started inside a running loop calls its async callback, and the loop need not help."""

    async def fetch() -> dict[str, Any]:
        return {"timeout": 2}

    with ConfigWatcher(follower.config, callback=fetch):
        assert follower.changed.wait(PATIENCE_S)
    assert follower.config.timeout == 2


def test_start_and_stop(start: Start) -> None:
    """start twice is once; stop ends the thread; it can start again; the thread never keeps the process alive."""

    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "qreward-reload"]

    watcher = start(callback=dict)
    watcher.start()
    assert watcher.is_running
    assert [thread.daemon for thread in threads()] == [True]
    watcher.stop()
    watcher.stop()
    assert (watcher.is_running, threads()) == (False, [])
    with watcher:
        assert watcher.is_running
    assert not watcher.is_running
