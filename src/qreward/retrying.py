"""`retry(...)`: repeat a function that fails, with growing waits; for one function without limits or hedges."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from qreward.callables import code_of
from qreward.errors import ConfigError
from qreward.types import RetryPredicate

P = ParamSpec("P")
R = TypeVar("R")


def retry(
    *,
    max_retries: int = 3,
    delay: float = 1.0,
    backoff_factor: float = 2.0,
    jitter: bool = True,
    retry_on: type[Exception] | Iterable[type[Exception]] | RetryPredicate = Exception,
    check_exception: RetryPredicate | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function, coroutine function, method, partial or callable object.

    max_retries: attempts after the first, >= 0.
    delay, backoff_factor, jitter: attempt k + 1 starts ``delay * backoff_factor**(k - 1)`` seconds after the k-th
        failure, plus up to *delay* seconds by chance with *jitter*. Both >= 0.
    retry_on: an exception class, several of them, or a predicate of the exception. Other exceptions end the call.
    check_exception: a further predicate; both must agree to a retry.

    The last exception itself is raised. KeyboardInterrupt, SystemExit and cancellation always pass.
    Raises ConfigError (a ValueError) at decoration for values out of range.
    """
    for name, value in (("max_retries", max_retries), ("delay", delay), ("backoff_factor", backoff_factor)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise ConfigError(f"retry: {name} must be a number >= 0, got {value!r}")
    wanted = _predicate(retry_on)

    def wait_s(failures: int, exc: Exception) -> float | None:
        if failures > max_retries or not wanted(exc) or (check_exception is not None and not check_exception(exc)):
            return None
        spread = random.uniform(0, delay) if jitter else 0.0  # noqa: S311 - spreads callers, protects nothing
        return float(delay * backoff_factor ** (failures - 1) + spread)

    def decorate(func: Callable[P, R]) -> Callable[P, R]:
        wrapper = (
            _async_wrapper(func, wait_s) if inspect.iscoroutinefunction(code_of(func)) else _sync_wrapper(func, wait_s)
        )
        return cast("Callable[P, R]", functools.update_wrapper(wrapper, func))

    return decorate


_Wait = Callable[[int, Exception], float | None]


def _predicate(retry_on: Any) -> RetryPredicate:
    if isinstance(retry_on, type):
        types: tuple[Any, ...] = (retry_on,)
    elif callable(retry_on):
        return cast("RetryPredicate", retry_on)
    elif isinstance(retry_on, Iterable):
        types = tuple(retry_on)  # read once: a generator would be empty at the second failure
    else:
        types = (retry_on,)
    for item in types:
        if not (isinstance(item, type) and issubclass(item, BaseException)):
            raise ConfigError(f"retry: retry_on must be exception classes or a predicate, got {item!r}")
    return lambda exc: isinstance(exc, types)


def _async_wrapper(func: Callable[..., Any], wait_s: _Wait) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        failures = 0
        while True:
            try:
                return await func(*args, **kwargs)
            except Exception as exc:
                failures += 1
                wait = wait_s(failures, exc)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    return wrapper


def _sync_wrapper(func: Callable[..., Any], wait_s: _Wait) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        failures = 0
        while True:
            try:
                return func(*args, **kwargs)
            except Exception as exc:
                failures += 1
                wait = wait_s(failures, exc)
                if wait is None:
                    raise
            time.sleep(wait)

    return wrapper
