"""`batch_chat_completion`: order, failures where they belong, progress, few tasks."""

from __future__ import annotations

import asyncio
import logging

import openai
import pytest

from qreward.errors import BatchError, ConfigError
from qreward.testing import eventually
from qreward.testing.faults import Delay


def prompts(n: int) -> list[list[dict[str, str]]]:
    return [[{"role": "user", "content": str(i)}] for i in range(n)]


async def test_results_are_in_input_order(proxy, judge):
    """Every entry has its own answer at its place, whatever the order of arrival."""
    judge.script(*[Delay(0.05 * (i % 3)) for i in range(30)])
    assert await proxy.batch_chat_completion(prompts(30), "m") == [f"echo:{i}" for i in range(30)]


async def test_a_worker_takes_the_next_entry(judge, proxy_for):
    """No more tasks than max_concurrent are made, however many entries there are."""
    proxy = proxy_for(judge.url, max_concurrent=4)
    before = len(asyncio.all_tasks())
    most = []

    def progress(done: int, total: int) -> None:
        most.append(len([t for t in asyncio.all_tasks() if t.get_coro().__qualname__ == "_Batch.work"]))

    assert len(await proxy.batch_chat_completion(prompts(100), "m", progress=progress)) == 100
    assert max(most) <= 4
    assert judge.counters.max_inflight <= 4
    assert len(asyncio.all_tasks()) <= before + 4 + 4  # the judge's own connection tasks


async def test_a_failed_entry_is_its_exception(proxy, judge, caplog):
    """Others are not touched; the failure is logged with its number."""
    judge.script("ok", 400, "ok")
    with caplog.at_level(logging.WARNING, logger="qreward.client.openai"):
        results = await proxy.with_max_concurrent(1).batch_chat_completion(prompts(3), "m")
    assert (results[0], results[2]) == ("echo:0", "echo:2")
    assert isinstance(results[1], openai.BadRequestError)
    assert "batch_chat_completion task 2/3 failed: BadRequestError" in caplog.text


async def later(exc: BaseException) -> str:
    return f"late {type(exc).__name__}"


@pytest.mark.parametrize(
    ("on_error", "entry"),
    [
        ("none", None),
        (None, None),
        (0.0, 0.0),
        (lambda exc: type(exc).__name__, "BadRequestError"),
        (later, "late BadRequestError"),
    ],
)
async def test_on_error_gives_the_entry(proxy, judge, on_error, entry):
    """A value, None, or what a function, sync or async, makes of the exception stands in its place."""
    judge.script(400)
    assert await proxy.batch_chat_completion(prompts(1), "m", on_error=on_error) == [entry]


async def test_on_error_raise_loses_nothing(proxy, judge):
    """With "raise" the batch finishes every entry, then raises BatchError with all results."""
    judge.script(400, "ok", "ok")
    with pytest.raises(BatchError, match="1 of 3 entries failed") as caught:
        await proxy.with_max_concurrent(1).batch_chat_completion(prompts(3), "m", on_error="raise")
    assert isinstance(caught.value.results[0], openai.BadRequestError)
    assert caught.value.results[1:] == ["echo:1", "echo:2"]


async def test_on_error_first_cancels_the_rest(proxy, judge):
    """With "first" the failure itself is raised, and calls in flight are cancelled."""
    judge.script(400, Delay(30), Delay(30))
    with pytest.raises(openai.BadRequestError):
        await proxy.with_max_concurrent(3).batch_chat_completion(prompts(5), "m", on_error="first")
    while judge.counters.client_gone < judge.counters.received - 1:
        await asyncio.sleep(0)
    assert judge.counters.received <= 3


async def test_a_misspelt_mode_is_refused(proxy, judge):
    """A string that is no mode is a ConfigError before anything is sent."""
    with pytest.raises(ConfigError, match="retrun"):
        await proxy.batch_chat_completion(prompts(1), "m", on_error="retrun")
    assert judge.counters.received == 0


async def test_error_process_func(judge, proxy_for):
    """It makes the entries of failures, is replaced by with_error_process_func and overruled by on_error."""
    proxy = proxy_for(judge.url, error_process_func=lambda exc: "sorry")
    judge.script(400, 400, 400)
    assert await proxy.batch_chat_completion(prompts(1), "m") == ["sorry"]
    proxy.with_error_process_func(lambda exc: "alas")
    assert await proxy.batch_chat_completion(prompts(1), "m") == ["alas"]
    assert await proxy.batch_chat_completion(prompts(1), "m", on_error="none") == [None]


async def test_returned_exceptions_count_as_failures(proxy):
    """A replaced chat_completion that returns an exception is treated like one that raises it."""

    async def chat_completion(messages, model, **kwargs):
        return RuntimeError("boom")

    proxy.chat_completion = chat_completion
    assert await proxy.batch_chat_completion(prompts(1), "m", on_error=str) == ["boom"]


async def test_cancellation_from_within_is_a_failure(proxy):
    """A call that cancels itself does not take the batch with it."""

    async def chat_completion(messages, model, **kwargs):
        if messages[0]["content"] == "1":
            raise asyncio.CancelledError
        return "ok"

    proxy.chat_completion = chat_completion
    results = await proxy.batch_chat_completion(prompts(3), "m")
    assert results[0] == results[2] == "ok"
    assert isinstance(results[1], asyncio.CancelledError)


async def test_cancelling_the_batch_cancels_its_calls(proxy, judge):
    """The server sees every connection close."""
    judge.faults.set(latency_s=30)
    task = asyncio.create_task(proxy.batch_chat_completion(prompts(8), "m"))
    await eventually(lambda: judge.counters.inflight >= 8)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: judge.counters.client_gone >= 8)
    assert proxy._gate.inflight == 0


async def test_progress(proxy, judge):
    """A callback gets (done, total), a bar is updated once per entry, and neither can break the batch."""
    seen: list[tuple[int, int]] = []
    judge.script(400)
    await proxy.batch_chat_completion(prompts(3), "m", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]

    class Bar:
        n = 0

        def update(self, by: int) -> None:
            self.n += by

    bar = Bar()
    await proxy.batch_chat_completion(prompts(3), "m", progress=bar)
    assert bar.n == 3
    assert len(await proxy.batch_chat_completion(prompts(3), "m", progress=lambda done, total: 1 / 0)) == 3


async def test_progress_bar(proxy, capsys):
    """progress=True draws a bar up to 100 %."""
    await proxy.batch_chat_completion(prompts(3), "m", progress=True)
    assert "3/3" in capsys.readouterr().err


async def test_an_empty_batch(proxy):
    """No entries, no results; a generator of entries will do."""
    assert await proxy.batch_chat_completion([], "m") == []
    assert await proxy.batch_chat_completion(iter(prompts(2)), "m") == ["echo:0", "echo:1"]
    with pytest.raises(ConfigError, match="batch_messages"):
        await proxy.batch_chat_completion("hello", "m")
