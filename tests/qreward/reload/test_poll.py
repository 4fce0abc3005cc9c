"""`ConfigWatcher.poll_once`: what a reading changes, and what it must not change."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from qreward.errors import ConfigError
from qreward.reload import ConfigWatcher
from qreward.testing.moment import Now
from qreward.utils import schedule
from qreward.utils.scheduler import ScheduleConfig


def watch_file(config: ScheduleConfig, path: Path, **settings: Any) -> ConfigWatcher:
    return ConfigWatcher(config, "file", path, **{"cooldown": 0.0, **settings})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("c.json", '{"timeout": 7.5, "retry_times": 3, "debug": true, "hedged_request_time": "p95"}'),
        ("c.yaml", "timeout: 7.5\nretry_times: 3\ndebug: yes\nhedged_request_time: p95\n"),
        ("c.conf", "timeout: '7.5'\nretry_times: '3'\ndebug: 'on'\nhedged_request_time: p95\n"),
    ],
)
def test_file(tmp_path: Path, name: str, text: str) -> None:
    """JSON and YAML mappings are applied with the settings' types; a reading that says nothing new changes nothing."""
    path = tmp_path / name
    path.write_text(text)
    config = ScheduleConfig(timeout=1.0)
    watcher = watch_file(config, path)
    assert watcher.poll_once()
    assert (config.timeout, config.retry_times, config.debug, config.hedged_request_time) == (7.5, 3, True, "p95")
    assert type(config.retry_times) is int
    assert not watcher.poll_once()


def test_env(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables are parsed by the type of the setting that they name."""
    for name, value in {"TIMEOUT": "42", "RETRY_TIMES": " 5 ", "DEBUG": "off", "HEDGED_REQUEST_TIME": "0.5"}.items():
        monkeypatch.setenv(f"QREWARD_SCHEDULE_{name}", value)
    config = ScheduleConfig(debug=True)
    assert ConfigWatcher(config, "env").poll_once()
    assert (config.timeout, config.retry_times, config.debug, config.hedged_request_time) == (42.0, 5, False, 0.5)


def test_callback() -> None:
    """A callback's mapping is applied; None, an empty one and the same one again change nothing."""
    answers: list[Any] = [None, {}, {"timeout": 3}, {"timeout": 3}, {"timeout": 4}]
    config = ScheduleConfig()
    watcher = ConfigWatcher(config, callback=iter(answers).__next__, cooldown=0)
    assert [watcher.poll_once() for _ in answers] == [False, False, True, False, True]
    assert config.timeout == 4


async def test_async_callback_in_a_running_loop() -> None:
    """An async callback works although the caller's event loop is running."""

    async def fetch() -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"retry_times": 2}

    config = ScheduleConfig()
    assert ConfigWatcher(config, callback=fetch).poll_once()
    assert config.retry_times == 2


def test_running_function_follows(tmp_path: Path) -> None:
    """A decorated function obeys the new settings at its next call."""
    config = ScheduleConfig(retry_interval=0)
    calls = []

    @schedule(config=config, default_result="gave up")
    def fails() -> str:
        calls.append(1)
        raise OSError

    assert fails() == "gave up"
    path = tmp_path / "c.json"
    path.write_text('{"retry_times": 2}')
    watch_file(config, path).poll_once()
    assert (fails(), len(calls)) == ("gave up", 1 + 3)


def test_all_changes_at_once(tmp_path: Path) -> None:
    """Listeners hear once, when every new value is there."""
    seen = []
    config = ScheduleConfig()
    config.on_change(lambda c: seen.append((c.timeout, c.limit_size)))
    path = tmp_path / "c.json"
    path.write_text('{"timeout": 5, "limit_size": 10}')
    watch_file(config, path).poll_once()
    assert seen == [(5, 10)]


BAD = {
    "not JSON": "{",
    "no mapping": "[1]",
    "out of range": '{"retry_times": 9, "timeout": -1}',
    "wrong type": '{"retry_times": 9, "timeout": "soon"}',
    "not whole": '{"retry_times": 2.5}',
    "not finite": '{"retry_interval": Infinity}',
    "number for a flag": '{"retry_times": 9, "debug": 7}',
    "flag for a number": '{"timeout": true}',
    "nothing": '{"timeout": null}',
    "bad quantile": '{"hedged_request_time": "p200"}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_bad_reload_is_refused_and_told_once(tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """A bad reload changes nothing, not even its good part; it is logged, reported once and kept until a good one."""
    path = tmp_path / "c.json"
    path.write_text(text)
    config = ScheduleConfig(timeout=5.0)
    before, told = config.snapshot(), list[Exception]()
    watcher = watch_file(config, path, on_error=told.append)
    assert [watcher.poll_once(), watcher.poll_once()] == [False, False]
    assert config.snapshot() == before
    assert isinstance(watcher.last_error, ConfigError)
    assert told == [watcher.last_error]
    assert [record.levelname for record in caplog.records] == ["ERROR"]

    path.write_text('{"timeout": 6}')
    assert watcher.poll_once()
    assert (config.timeout, watcher.last_error) == (6, None)


def test_the_message_names_setting_and_value(tmp_path: Path) -> None:
    """The error of a refused value says which setting, what it must be and what it was."""
    path = tmp_path / "c.json"
    path.write_text('{"retry_times": "many"}')
    watcher = watch_file(ScheduleConfig(), path)
    watcher.poll_once()
    assert str(watcher.last_error) == "retry_times must be a whole number, got 'many'"


def test_a_listener_that_fails_takes_the_change_back() -> None:
    """When a function cannot follow the new settings, the old ones return and the reload counts as refused."""
    config = ScheduleConfig(timeout=5.0)
    followed = []

    def follow(changed: ScheduleConfig) -> None:
        followed.append(changed.timeout)
        if changed.timeout == 9:
            raise RuntimeError("cannot")

    config.on_change(follow)
    watcher = ConfigWatcher(config, callback=lambda: {"timeout": 9})
    assert not watcher.poll_once()
    assert (config.timeout, followed) == (5.0, [9, 5.0])
    assert isinstance(watcher.last_error, RuntimeError)


def test_a_broken_on_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An on_error callback that raises does not break the watcher."""

    def broken(_: Exception) -> None:
        raise KeyError("oops")

    watcher = ConfigWatcher(ScheduleConfig(), callback=lambda: {"timeout": -1}, on_error=broken)
    assert not watcher.poll_once()
    assert "on_error callback" in caplog.text


def test_unknown_names_are_ignored_with_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    """An unknown name, and one that text cannot hold, is logged once and ignored; the others are applied."""
    config = ScheduleConfig()
    answers = iter([{"retry_time": 3, "key_func": "f", "timeout": 8}, {"retry_time": 3, "timeout": 9}])
    watcher = ConfigWatcher(config, callback=lambda: next(answers), cooldown=0)
    with caplog.at_level(logging.WARNING):
        assert [watcher.poll_once(), watcher.poll_once()] == [True, True]
    assert config.timeout == 9
    assert [record.getMessage() for record in caplog.records] == [
        "callback: 'retry_time' is not a setting that a reload can change; did you mean 'retry_times'?",
        "callback: 'key_func' is not a setting that a reload can change",
    ]


def test_cooldown_delays_and_loses_nothing(now: Now, tmp_path: Path) -> None:
    """A change within the cooldown waits for its end; the last one counts."""
    path, config = tmp_path / "c.json", ScheduleConfig()
    watcher = watch_file(config, path, cooldown=10.0)
    for second, timeout, expected in [(0, 1, 1), (5, 2, 1), (6, 3, 1), (10, 3, 3), (12, 4, 3), (20, 4, 4)]:
        now.s = 1000.0 + second
        path.write_text(json.dumps({"timeout": timeout}))
        watcher.poll_once()
        assert config.timeout == expected


def test_a_file_that_is_missing_or_empty(tmp_path: Path) -> None:
    """A missing file is reported once and read when it comes; an empty one is one that is being written."""
    path, config, told = tmp_path / "c.json", ScheduleConfig(), list[Exception]()
    watcher = watch_file(config, path, on_error=told.append)
    assert [watcher.poll_once(), watcher.poll_once()] == [False, False]
    assert [type(error) for error in told] == [FileNotFoundError]
    path.write_text(" \n")
    assert not watcher.poll_once()
    path.write_text('{"timeout": 2}')
    assert watcher.poll_once()
    assert (watcher.last_error, len(told)) == (None, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "http"}, "source must be"),
        ({"source": "file"}, "file_path is required"),
        ({"source": "callback"}, "callback is required"),
        ({"source": "env", "poll_interval": 0}, "poll_interval must be > 0"),
        ({"source": "env", "cooldown": -1}, "cooldown >= 0"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    """A watcher that cannot work is a ValueError at once."""
    with pytest.raises(ValueError, match=message):
        ConfigWatcher(ScheduleConfig(), **arguments)
