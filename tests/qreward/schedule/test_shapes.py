"""What can be decorated, and that it stays what it was."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator

import pytest

from qreward.errors import ConfigError
from qreward.utils import schedule


class Flaky:
    """Fails once, then answers."""

    def __init__(self) -> None:
        self.calls = 0

    def step(self) -> None:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("first")


class Judge(Flaky):
    @schedule(retry_times=1, retry_interval=0.001)
    async def method(self, value: int) -> int:
        """The method's own words."""
        self.step()
        return value

    @schedule(retry_times=1, retry_interval=0.001)
    def sync_method(self, value: int) -> int:
        self.step()
        return value

    async def __call__(self, value: int) -> int:
        self.step()
        return value


async def test_methods_are_retried_with_their_self() -> None:
    """Decorated in the class, async and sync, on an instance."""
    assert await Judge().method(3) == 3
    assert Judge().sync_method(4) == 4


async def test_bound_methods_partials_and_callable_objects() -> None:
    """Decorated from outside: a bound method, a partial of one, an object with an async __call__."""

    class Plain(Flaky):
        async def method(self, a: int, b: int = 0) -> int:
            self.step()
            return a + b

    again = schedule(retry_times=1, retry_interval=0.001)
    assert await again(Plain().method)(1, b=2) == 3
    assert await again(functools.partial(Plain().method, 1))(b=4) == 5
    assert await again(Judge())(6) == 6


def test_the_wrapper_looks_like_the_function() -> None:
    """Name, docstring, signature and kind stay."""
    assert Judge.method.__name__ == "method"
    assert Judge.method.__doc__ == "The method's own words."
    assert list(inspect.signature(Judge.method).parameters) == ["self", "value"]
    assert inspect.iscoroutinefunction(Judge.method)
    assert not inspect.iscoroutinefunction(Judge.sync_method)


async def test_async_generators_are_retried_until_their_first_item() -> None:
    """A stream that fails at its start is opened again; one that fails later raises."""
    opened = 0

    @schedule(retry_times=2, retry_interval=0.001)
    async def numbers(bad_after: int) -> AsyncIterator[int]:
        nonlocal opened
        opened += 1
        for i in range(3):
            if i == bad_after and opened < 2 + (bad_after > 0) * 10:
                raise ConnectionError("broken")
            yield i

    assert inspect.isasyncgenfunction(numbers)
    assert [i async for i in numbers(0)] == [0, 1, 2]
    assert opened == 2
    with pytest.raises(ConnectionError):
        _ = [i async for i in numbers(2)]
    assert opened == 3


async def test_the_default_of_a_stream_that_gave_nothing() -> None:
    """A stream that finally fails before its first item yields the default."""

    @schedule(default_result="nothing")
    async def broken() -> AsyncIterator[str]:
        raise ConnectionError("down")
        yield ""

    assert [item async for item in broken()] == ["nothing"]


async def test_all_parameters_may_be_positional() -> None:
    """The 24 parameters keep their order."""

    @schedule(
        9, 0, 0.05, 2, 5, 1, 0.001, 0, 1.0, None, (ConnectionError,), "default", False,
        None, 0, 30.0, False, 10, 500, 0.3, 5.0, 10.0, 5, None,
    )  # fmt: skip
    async def broken() -> str:
        raise ConnectionError("down")

    assert await broken() == "default"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"timeout": -1}, "timeout"),
        ({"retry_interval": -1}, "retry_interval"),
        ({"hedged_request_time": 1, "hedged_request_proportion": 0}, "hedged_request_proportion"),
        ({"hedged_request_time": "p0"}, "hedged_request_time"),
        ({"adaptive_limit": True, "adaptive_limit_min": 9, "adaptive_limit_max": 3}, "adaptive_limit_min"),
        ({"circuit_breaker_threshold": 1, "circuit_breaker_failure_rate": 2}, "circuit_breaker_failure_rate"),
    ],
)
def test_bad_values_are_refused_at_decoration(settings: dict[str, object], named: str) -> None:
    """A value out of range raises a ValueError that names the parameter."""
    with pytest.raises(ConfigError, match=named):
        schedule(**settings)  # type: ignore[arg-type]


async def test_a_plain_decoration_changes_nothing() -> None:
    """Without settings the value, the exception and the cancellation pass through."""

    @schedule()
    async def echo(value: object) -> object:
        if isinstance(value, BaseException):
            raise value
        await asyncio.sleep(0)
        return value

    error = KeyError("x")
    assert await echo(1) == 1
    with pytest.raises(KeyError) as caught:
        await echo(error)
    assert caught.value is error


@pytest.mark.parametrize(("settings", "opened"), [({}, 1), ({"hedge_streams": True}, 2)])
async def test_streams_are_raced_only_on_demand(settings: dict[str, bool], opened: int) -> None:
    """hedged_request_time alone leaves a slow stream alone; hedge_streams lets a second one overtake it."""
    count = 0

    @schedule(hedged_request_time=0.01, **settings)
    async def numbers() -> AsyncIterator[int]:
        nonlocal count
        count += 1
        if count == 1:
            await asyncio.sleep(0.2)
        yield count

    assert [i async for i in numbers()] == [opened]
    assert count == opened


async def test_a_broken_stream_is_an_error_whatever_its_default() -> None:
    """A stream that breaks after an item raises and counts as an error; before it, an async default is awaited."""
    seen: list[str] = []

    async def later(fail_at: int) -> str:
        await asyncio.sleep(0)
        return f"default for {fail_at}"

    @schedule(default_result=later, metrics_callback=lambda metrics: seen.append(metrics.outcome))
    async def items(fail_at: int) -> AsyncIterator[object]:
        for i in range(3):
            if i == fail_at:
                raise ConnectionError("broken")
            yield i

    assert [item async for item in items(0)] == ["default for 0"]
    with pytest.raises(ConnectionError):
        _ = [item async for item in items(2)]
    assert seen == ["default", "error"]
