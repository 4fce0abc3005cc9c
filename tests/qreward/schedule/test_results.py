"""Defaults, metrics, debug lines, observers: what comes back from a call besides its value."""

from __future__ import annotations

import asyncio
import logging

import pytest

from qreward.events import Attempt, Call
from qreward.utils import schedule
from qreward.utils.scheduler import ScheduleMetrics


def failing(*, times: int = 10**9) -> object:
    calls = 0

    async def body(value: str = "x") -> str:
        nonlocal calls
        calls += 1
        if calls <= times:
            raise ConnectionError(f"failure {calls}")
        return value

    return body


async def test_default_values_and_functions() -> None:
    """A value, None, a function of the arguments, and an async one replace any final failure."""
    assert await schedule(default_result=5)(failing())() == 5
    assert await schedule(default_result=None)(failing())() is None
    assert await schedule(default_result=lambda value: value + "!")(failing())("a") == "a!"

    async def later(value: str) -> str:
        await asyncio.sleep(0)
        return value + "?"

    assert await schedule(default_result=later)(failing())("a") == "a?"


async def test_the_default_covers_timeouts_but_not_cancellation() -> None:
    """A timeout gives the default; a cancelled caller is cancelled."""

    async def slow() -> str:
        await asyncio.sleep(30)
        return "late"

    ours = schedule(timeout=0.02, default_result="default")(slow)
    assert await ours() == "default"
    task = asyncio.create_task(schedule(default_result="default")(slow)())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_metrics_come_once_per_call_whatever_happens() -> None:
    """Success, failure and default each give exactly one ScheduleMetrics that counts attempts and retries."""
    seen: list[ScheduleMetrics] = []
    settings = {"retry_times": 2, "retry_interval": 0.001, "metrics_callback": seen.append}
    await schedule(**settings)(failing(times=2))()
    with pytest.raises(ConnectionError):
        await schedule(**settings)(failing())()
    await schedule(default_result=0, **settings)(failing())()
    assert [(m.success_count, m.failure_count, m.retry_count) for m in seen] == [(1, 2, 2), (0, 3, 2), (0, 3, 2)]
    assert [m.attempts for m in seen] == [3, 3, 3]
    assert [m.outcome for m in seen] == ["ok", "error", "default"]
    assert all(m.total_calls == 3 and m.total_latency_ms >= m.wait_ms >= 0 for m in seen)


def test_metrics_of_synchronous_functions() -> None:
    """A sync function reports as well."""
    seen: list[ScheduleMetrics] = []
    assert schedule(metrics_callback=seen.append)(lambda: 1)() == 1
    assert (seen[0].total_calls, seen[0].success_count) == (1, 1)


async def test_a_callback_that_raises_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    """The caller gets the value; the log gets the callback's error."""

    def broken(metrics: ScheduleMetrics) -> None:
        raise ValueError("callback")

    assert await schedule(metrics_callback=broken)(failing(times=0))() == "x"
    assert "callback" in caplog.text


async def test_debug_writes_one_line_per_call(caplog: pytest.LogCaptureFixture) -> None:
    """One DEBUG line tells outcome, attempts and times; without debug there is none."""
    name = "qreward.utils.scheduler.base"
    with caplog.at_level(logging.DEBUG, logger=name):
        await schedule(retry_times=1, retry_interval=0.001, debug=True)(failing(times=1))()
        await schedule()(failing(times=0))()
    lines = [r.message for r in caplog.records if r.name == name]
    assert len(lines) == 1
    assert "attempts=2" in lines[0]


class Recorder:
    def __init__(self) -> None:
        self.steps: list[str] = []

    def call_started(self, call: Call) -> None:
        self.steps.append("call")

    def attempt_started(self, call: Call, attempt: Attempt) -> None:
        self.steps.append(f"attempt {attempt.number}")

    def attempt_ended(self, call: Call, attempt: Attempt) -> None:
        self.steps.append("failed" if attempt.error else "answered")

    def call_ended(self, call: Call) -> None:
        self.steps.append(str(call.outcome))


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_an_exporter_is_told_every_step(kind: str) -> None:
    """Calls and attempts are announced in order, for async and sync functions alike."""
    recorder = Recorder()
    calls = 0

    def body() -> str:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("down")
        return "x"

    async def async_body() -> str:
        return body()

    ours = schedule(retry_times=1, retry_interval=0.001, telemetry_exporter=recorder)
    if kind == "async":
        await ours(async_body)()
    else:
        await asyncio.to_thread(ours(body))
    assert recorder.steps == ["call", "attempt 1", "failed", "attempt 2", "answered", "ok"]
