"""`retry(...)` through the public door."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from qreward.utils import retry


class Flaky:
    """Raises the given exceptions in turn, then answers with its arguments."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    def answer(self, *args: Any) -> Any:
        self.calls += 1
        if self.calls <= len(self.errors):
            raise self.errors[self.calls - 1]
        return args

    async def answer_async(self, *args: Any) -> Any:
        return self.answer(*args)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Collects the waits, which then take no time."""
    seen: list[float] = []

    async def sleep(seconds: float) -> None:
        seen.append(seconds)

    monkeypatch.setattr("time.sleep", seen.append)
    monkeypatch.setattr("asyncio.sleep", sleep)
    return seen


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    "retry_on",
    [KeyError, (KeyError, OSError), [OSError, KeyError], {KeyError}, (c for c in [KeyError]), lambda e: bool(e.args)],
    ids=["class", "tuple", "list", "set", "generator", "predicate"],
)
def test_retry_on(retry_on: Any) -> None:
    """Classes, iterables of classes and predicates all decide; an exception outside ends the call at once."""
    decorate = retry(max_retries=3, retry_on=retry_on)
    good = Flaky(KeyError("a"), KeyError("b"))
    assert decorate(good.answer)(1) == (1,)
    assert good.calls == 3

    bad = Flaky(ValueError())
    with pytest.raises(ValueError):  # noqa: PT011 - the very object is compared below
        decorate(bad.answer)()
    assert bad.calls == 1


@pytest.mark.parametrize("answer", ["answer", "answer_async"])
async def test_waits_grow_and_the_last_exception_is_raised(answer: str, waits: list[float]) -> None:
    """Waits are delay x factor^k without jitter, there is none after the last failure, and the last error is raised."""
    errors = [OSError(str(n)) for n in range(4)]
    flaky = Flaky(*errors)
    func = retry(max_retries=3, delay=0.5, backoff_factor=3.0, jitter=False)(getattr(flaky, answer))

    async def call() -> None:
        result = func()
        if inspect.isawaitable(result):
            await result

    with pytest.raises(OSError, match="3") as caught:
        await call()
    assert caught.value is errors[3]
    assert waits == [0.5, 1.5, 4.5]


@pytest.mark.parametrize("seed", range(5))
def test_jitter_adds_up_to_delay(seed: int, waits: list[float]) -> None:
    """With jitter a wait lies between the plain one and delay more."""
    flaky = Flaky(OSError(), OSError(), OSError())
    retry(max_retries=3, delay=2.0)(flaky.answer)(seed)
    assert [2.0 <= waits[0] <= 4.0, 4.0 <= waits[1] <= 6.0, 8.0 <= waits[2] <= 10.0] == [True] * 3
    assert waits != [2.0, 4.0, 8.0]


def test_check_exception_must_agree(waits: list[float]) -> None:
    """check_exception is a further condition: a retry needs both."""
    flaky = Flaky(OSError(1, "again"), OSError(2, "no"))
    with pytest.raises(OSError, match="no"):
        retry(check_exception=lambda e: e.args[0] == 1)(flaky.answer)()
    assert flaky.calls == 2
    assert len(waits) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError(), GeneratorExit()])
async def test_what_is_no_exception_passes(error: BaseException, waits: list[float]) -> None:
    """Interrupts and cancellation are never retried, sync or async, whatever the predicate says."""
    flaky, flaky_async = Flaky(error), Flaky(error)
    with pytest.raises(type(error)):
        retry(retry_on=lambda _: True)(flaky.answer)()
    with pytest.raises(type(error)):
        await retry(retry_on=lambda _: True)(flaky_async.answer_async)()
    assert (flaky.calls, flaky_async.calls, waits) == (1, 1, [])


async def test_cancelled_while_it_waits() -> None:
    """A caller that is cancelled during a wait gets the cancellation, and the function is not called again."""
    flaky = Flaky(OSError())
    task = asyncio.ensure_future(retry(delay=3600.0)(flaky.answer_async)())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flaky.calls == 1


class Service:
    """Things other than plain functions."""

    def __init__(self) -> None:
        self.flaky = Flaky(OSError())

    @retry()
    async def method(self, x: int) -> Any:
        """Doc."""
        return self.flaky.answer(x)

    async def __call__(self, x: int) -> Any:
        return self.flaky.answer(x)


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize(
    "make",
    [
        lambda: Service().method,
        lambda: retry()(Service().__call__),
        lambda: retry()(Service()),
        lambda: retry()(functools.partial(Flaky(OSError()).answer_async)),
    ],
    ids=["method", "bound", "object", "partial"],
)
async def test_kinds_of_callables(make: Callable[[], Any]) -> None:
    """Methods, bound methods, callable objects and partials of coroutine functions are retried."""
    assert await make()(7) == (7,)


def test_the_function_keeps_its_name() -> None:
    """The wrapper is a coroutine function with the name and the docstring of what it wraps."""
    assert inspect.iscoroutinefunction(Service.method)
    assert (Service.method.__name__, Service.method.__doc__) == ("method", "Doc.")


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_retries": -1},
        {"delay": -0.1},
        {"backoff_factor": "2"},
        {"retry_on": 5},
        {"retry_on": [KeyError, "OSError"]},
    ],
    ids=str,
)
def test_wrong_settings_are_refused_at_decoration(wrong: dict[str, Any]) -> None:
    """A value that cannot work is a ValueError that names the parameter, before any call."""
    with pytest.raises(ValueError, match=f"retry: {next(iter(wrong))} must be"):
        retry(**wrong)
