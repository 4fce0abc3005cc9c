"""`AsyncRunner`, `SyncRunner` and `ExecutionContext`; cancelling what lost."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from qreward.testing.moment import Now
from qreward.testing.virtual import run_virtual
from qreward.utils.schedule import _cancel_async_task, _cancel_sync_task
from qreward.utils.scheduler import (
    AsyncRunner,
    BaseRunner,
    ExecutionContext,
    LimiterPool,
    RunningTaskPool,
    ScheduleConfig,
    SyncRunner,
)


def context_of(
    func: Callable[..., Any], config: ScheduleConfig, limiter: LimiterPool | None = None
) -> ExecutionContext:
    return ExecutionContext(func, config, "key", RunningTaskPool(), limiter)


@pytest.fixture
def sync_runner() -> Iterator[SyncRunner]:
    with concurrent.futures.ThreadPoolExecutor(4) as executor:
        runner = SyncRunner()
        runner.set_executor(executor)
        yield runner


def outcome(runner: BaseRunner, func: Callable[[], Any], config: ScheduleConfig) -> tuple[Any, ExecutionContext]:
    """Run *func* (sync) on either kind of runner; (result, context)."""
    context = context_of(func, config)
    if isinstance(runner, SyncRunner):
        return runner.execute_impl(context, config), context

    async def call() -> Any:
        return func()

    context.func = call
    assert isinstance(runner, AsyncRunner)
    return asyncio.run(runner.execute_impl(context, config)), context


@pytest.fixture(params=["async", "sync"])
def runner(request: pytest.FixtureRequest, sync_runner: SyncRunner) -> BaseRunner:
    return AsyncRunner() if request.param == "async" else sync_runner


def flaky(failures: int, error: type[Exception] = ValueError) -> Callable[[], str]:
    errors = iter([error(f"attempt {n}") for n in range(failures)])

    def func() -> str:
        for failure in errors:
            raise failure
        return "answer"

    return func


def test_retries_and_what_the_context_tells(runner: BaseRunner) -> None:
    """Failed attempts are repeated and recorded; the metrics count them."""
    result, context = outcome(runner, flaky(2), ScheduleConfig(retry_times=3, retry_interval=0))
    assert (result, context.result, context.finish) == ("answer", "answer", True)
    assert context.result_exception_list == ["ValueError attempt 0", "ValueError attempt 1"]
    metrics = context.build_metrics()
    assert (metrics.total_calls, metrics.success_count, metrics.failure_count, metrics.retry_count) == (3, 1, 2, 2)


def test_the_last_exception_or_the_default(runner: BaseRunner) -> None:
    """A final failure raises the last exception, or gives the default result."""
    with pytest.raises(KeyError, match="attempt 0"):
        outcome(runner, flaky(5, KeyError), ScheduleConfig(retry_times=3, retry_interval=0, exception_types=OSError))
    for default in "fallback", lambda: "fallback":
        result, context = outcome(
            runner, flaky(5), ScheduleConfig(retry_times=1, retry_interval=0, default_result=default)
        )
        assert (result, context.cur_times) == ("fallback", 2)
        assert isinstance(context.result_exception, ValueError)


def test_timeout_of_an_async_call() -> None:
    """A call that takes too long ends with TimeoutError and its body is cancelled."""
    cancelled = []

    async def slow() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    config = ScheduleConfig(timeout=2)
    with pytest.raises(TimeoutError, match="execute more than 2 seconds"):
        run_virtual(lambda: AsyncRunner().execute_impl(context_of(slow, config), config))
    assert cancelled == [True]


def test_timeout_of_a_sync_call(sync_runner: SyncRunner) -> None:
    """A sync body that hangs is left behind at the timeout."""
    release = threading.Event()
    config = ScheduleConfig(timeout=0.05)
    with pytest.raises(TimeoutError, match=r"execute more than 0\.05 seconds"):
        sync_runner.execute_impl(context_of(release.wait, config), config, 30)
    release.set()


def test_a_hedge_overtakes() -> None:
    """A duplicate of a slow attempt answers first, and the context counts it."""
    calls = []

    async def func() -> str:
        calls.append(1)
        await asyncio.sleep(60 if len(calls) == 1 else 1)
        return f"answer {len(calls)}"

    config = ScheduleConfig(hedged_request_time=5, hedged_request_proportion=1.0)
    context = context_of(func, config)
    assert run_virtual(lambda: AsyncRunner().execute_impl(context, config)) == "answer 2"
    assert context.build_metrics().hedge_count == 1


def test_the_limiter_is_asked_before_every_attempt() -> None:
    """Attempts wait for the limiter of the context; without a place in time the call fails."""

    async def main() -> list[float]:
        loop = asyncio.get_running_loop()
        began, starts = loop.time(), list[float]()
        limiter = LimiterPool(1, 10.0, clock=loop.time)

        async def func() -> None:
            starts.append(loop.time() - began)

        config = ScheduleConfig()
        for _ in range(2):
            await AsyncRunner().execute_impl(context_of(func, config, limiter), config)
        hurried = ScheduleConfig(timeout=3)
        with pytest.raises(TimeoutError):
            await AsyncRunner().execute_impl(context_of(func, hurried, limiter), hurried)
        return starts

    assert run_virtual(main) == pytest.approx([0.0, 10.0])


def test_debug_line(runner: BaseRunner, caplog: pytest.LogCaptureFixture) -> None:
    """debug writes one line per call."""
    with caplog.at_level(logging.DEBUG, logger="qreward.utils.scheduler.base"):
        outcome(runner, flaky(0), ScheduleConfig(debug=True))
    assert [record.getMessage() for record in caplog.records] == [
        "[schedule] key: execute finish, attempts=1, failures=none"
    ]


async def test_tasks_of_the_runners(sync_runner: SyncRunner) -> None:
    """create_task starts an attempt with its arguments; the other methods tell what became of it."""

    async def double(x: int) -> int:
        return 2 * x

    async def fail() -> None:
        raise OSError

    runner = AsyncRunner()
    good, bad, lost = runner.create_task(double, 21), runner.create_task(fail), runner.create_task(asyncio.sleep, 99)
    lost.cancel()
    await asyncio.gather(good, bad, lost, return_exceptions=True)
    assert (runner.get_task_result(good), type(runner.get_task_exception(bad))) == (42, OSError)
    assert [runner.is_task_cancelled(task) for task in (good, lost)] == [False, True]

    future = sync_runner.create_task(int, "42")
    assert (sync_runner.get_task_result(future), sync_runner.get_task_exception(future)) == (42, None)
    assert not sync_runner.is_task_cancelled(future)
    with pytest.raises(RuntimeError, match="Executor not set"):
        SyncRunner().create_task(int)


def test_what_the_context_allows(now: Now) -> None:
    """The decisions of the context: first attempts, retries, speed-up, hedges, waits and the timeout."""
    config = ScheduleConfig(timeout=10, retry_times=2, retry_interval=4, hedged_request_time=3)
    context = context_of(print, config)
    assert (context.can_submit_task(0), context.can_submit_task(1)) == (True, False)
    context.mark_task_submitted()
    assert (context.is_hedge_submit(1), context.compute_timeout(1)) == (False, 3.0)
    now.s += 3
    assert (context.is_hedge_submit(1), context.can_submit_task(1)) == (True, True)
    for _ in range(2):
        context.record_hedge()
    assert (context.is_hedge_submit(1), context.compute_timeout(1)) == (False, 7.0)
    context.increase_speed()
    context.increase_speed()
    assert (context.can_submit_task(1), context.compute_timeout(1)) == (True, 4.0)
    context.reset_speed()
    assert not context.can_submit_task(1)
    assert (context.get_limiter_timeout(0), context.get_limiter_timeout(1)) == (7.0, 4.0)
    now.s += 6
    assert (context.get_limiter_timeout(1), context.is_timeout) == (1.0, False)
    now.s += 2
    assert (context.is_timeout, context.elapsed, context.can_submit_task(0)) == (True, 11.0, False)


async def test_cancelling_async_tasks() -> None:
    """Pending tasks are cancelled and waited for, finished ones emptied without a complaint about their errors."""

    async def fail() -> None:
        raise OSError

    done, pending = [asyncio.ensure_future(fail())], [asyncio.ensure_future(asyncio.sleep(99))]
    await asyncio.sleep(0)
    await _cancel_async_task(pending, done, 1.0)
    assert (done, pending[0].cancelled()) == ([], True)


def test_cancelling_sync_tasks() -> None:
    """What has not begun is cancelled; what runs is waited for no longer than told."""
    release = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        running, queued, done = executor.submit(release.wait, 30), executor.submit(int), [executor.submit(int)]
        done[0].cancel()
        _cancel_sync_task([running, queued], done, 0.0)
        assert (running.done(), queued.cancelled(), done) == (False, True, [])
        release.set()
