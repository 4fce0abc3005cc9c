"""`schedule(...)`: any function, made patient, quick and careful."""

from __future__ import annotations

import contextvars
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any, ParamSpec, TypeVar

from qreward.callables import code_of
from qreward.errors import ConfigError
from qreward.runtime.driver import drive
from qreward.runtime.portal import Caller, portal
from qreward.runtime.stream import stream
from qreward.schedule.config import DEFAULTS, UNSET, ExceptionTypes, ScheduleConfig, normal_types
from qreward.schedule.scheduled import Scheduled, default_value

P = ParamSpec("P")
R = TypeVar("R")

# What a file or an environment variable cannot hold may stand beside `config=`.
_BESIDE_CONFIG = ("key_func", "exception_types", "default_result", "metrics_callback", "telemetry_exporter")


def schedule(
    timeout: float = 0,
    hedged_request_time: float | str = 0,
    hedged_request_proportion: float = 0.05,
    hedged_request_max_times: int = 2,
    speed_up_max_multiply: int = 5,
    retry_times: int = 0,
    retry_interval: float = 1,
    limit_size: int = 0,
    limit_window: float = 1.0,
    key_func: Any = UNSET,
    exception_types: ExceptionTypes = BaseException,
    default_result: Any = UNSET,
    debug: bool = False,
    metrics_callback: Callable[[Any], None] | None = None,
    circuit_breaker_threshold: int = 0,
    circuit_breaker_recovery: float = 30.0,
    adaptive_limit: bool = False,
    adaptive_limit_min: int = 10,
    adaptive_limit_max: int = 500,
    adaptive_error_threshold: float = 0.3,
    adaptive_latency_threshold: float = 5.0,
    adaptive_window_seconds: float = 10.0,
    priority: int = 5,
    telemetry_exporter: Any = None,
    *,
    config: ScheduleConfig | None = None,
    circuit_breaker_failure_rate: float = 0.5,
    max_threads: int = 0,
    hedge_streams: bool = False,
    idempotent: bool = True,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate an ``async def``, a ``def``, an async generator, a partial, a bound method or a callable object.

    Everything is off by default; 0 means off. Functions decorated under one key (module + qualified name + the value
    of *key_func*) share its limits, breaker, budgets and queue, whether they are async or sync.

    timeout: wall-clock seconds for the whole call, waits and retries included. The async body is cancelled; a
        sync body is left behind in its daemon thread. Raises TimeoutError.
    hedged_request_time: seconds without an answer before a duplicate is sent, or a quantile of the observed latency
        such as ``"p95"``. The first answer wins, the others are cancelled.
    hedged_request_proportion: duplicates as a share of recent calls, in (1e-6, 1].
    hedged_request_max_times: duplicates per call.
    speed_up_max_multiply: upper bound of the attempts of one call at any moment, and how much shorter than its
        backoff a retry may wait while the key is idle and healthy. Failures never multiply attempts.
    retry_times, retry_interval: attempts after the first; the backoff is exponential from *retry_interval* seconds
        with full jitter, ``Retry-After`` wins. Programming errors and 4xx other than 408, 409, 425, 429 are final.
    exception_types: what may be retried; None = everything. A programming error is retried when its class is named.
    limit_size, limit_window: at most *limit_size* attempts start in any *limit_window* seconds.
    key_func: ``key_func(*args, **kwargs)`` extends the key.
    default_result: returned instead of raising any final failure; a callable is called with the call's arguments.
    debug: one DEBUG line per call on the logger ``qreward.utils.scheduler.base``.
    metrics_callback: called once per call with a ScheduleMetrics.
    circuit_breaker_threshold: failures in a row that open the breaker of the key (or a share of
        *circuit_breaker_failure_rate* of its recent results); CircuitOpenError until *circuit_breaker_recovery* seconds
        have passed and a probe has answered.
    adaptive_limit: lets the limit move between *adaptive_limit_min* and *adaptive_limit_max*, starting at *limit_size*
        (needs limit_size > 0), by what the server answers; it bounds the attempts at once and per window.
    adaptive_error_threshold, adaptive_latency_threshold (seconds), adaptive_window_seconds: when results mean overload.
    priority: 0 (first) to 9 (last) among calls that wait; a call that waited a minute goes first.
    telemetry_exporter: a TelemetryExporter, or any `qreward.events.Observer`.
    config: a ScheduleConfig in place of the parameters; its changes apply to running functions at once.
    max_threads: cap on the threads of sync bodies; 0 = none.
    hedge_streams: lets hedging race async generators for their first item.
    idempotent: False = never duplicated, and retried only when the server certainly did not process the attempt.

    Raises ConfigError (a ValueError) at decoration for values out of range.
    """
    settings = {name: value for name, value in locals().items() if name != "config"}
    beside = {} if config is None else _beside(settings)
    live = ScheduleConfig(**settings) if config is None else config

    def decorate(func: Callable[P, R]) -> Callable[P, R]:
        return _wrap(func, Scheduled(func, live, beside))

    return decorate


def _beside(settings: dict[str, Any]) -> dict[str, Any]:
    """What was given beside a config and may stand there; ConfigError for the rest."""
    both = sorted(k for k, v in settings.items() if k not in _BESIDE_CONFIG and v != DEFAULTS[k])
    if both:
        raise ConfigError(f"{', '.join(both)} given beside config=; set it in the ScheduleConfig instead")
    # By identity: a default result may be an array, which has no truth value.
    given = {k: settings[k] for k in _BESIDE_CONFIG if settings[k] is not DEFAULTS[k]}
    if given.get("exception_types") is BaseException:
        del given["exception_types"]
    elif "exception_types" in given:
        given["exception_types"] = normal_types(given["exception_types"])
    return given


def _wrap(func: Callable[P, R], state: Scheduled) -> Callable[P, R]:
    inner = code_of(func)
    wrapper: Any
    if inspect.isasyncgenfunction(inner):
        wrapper = _stream_wrapper(func, state)
    elif inspect.iscoroutinefunction(inner):
        wrapper = _async_wrapper(func, state)
    else:
        wrapper = _sync_wrapper(func, state)
    functools.update_wrapper(wrapper, func)
    wrapper.scheduled = state
    return wrapper  # type: ignore[no-any-return]


def _async_wrapper(func: Callable[..., Any], state: Scheduled) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = state.bound
        gate = state.gate(bound, args, kwargs)
        call = state.begin(bound, gate)
        try:
            value = await drive(bound.plan, gate, lambda: func(*args, **kwargs), call, bound.observer)
        except BaseException as exc:
            if not state.end(bound, call, exc):
                raise
            value = default_value(bound.settings["default_result"], args, kwargs)
            return await value if inspect.isawaitable(value) else value
        state.end(bound, call, None)
        return value

    return wrapper


def _stream_wrapper(func: Callable[..., Any], state: Scheduled) -> Callable[..., Any]:
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        bound = state.bound
        gate = state.gate(bound, args, kwargs)
        call = state.begin(bound, gate)
        items = stream(bound.stream_plan, gate, lambda: func(*args, **kwargs), call, bound.observer)
        yielded = False
        try:
            async for item in items:
                yielded = True
                yield item
        except BaseException as exc:
            if not state.end(bound, call, exc, replaceable=not yielded):
                raise
            value = default_value(bound.settings["default_result"], args, kwargs)
            yield await value if inspect.isawaitable(value) else value
        else:
            state.end(bound, call, None)
        finally:
            await items.aclose()

    return wrapper


def _sync_wrapper(func: Callable[..., Any], state: Scheduled) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        bound = state.bound
        gate = state.gate(bound, args, kwargs)
        call = state.begin(bound, gate)
        body = functools.partial(func, *args, **kwargs)
        context = contextvars.copy_context()
        observer = bound.observer

        async def main(caller: Caller) -> Any:
            if bound.in_caller_thread:
                return await drive(bound.plan, gate, lambda: caller.run(body), call, observer)
            return await drive(bound.plan, gate, lambda: state.threads.run(body, context), call, observer)

        try:
            value = portal().run(main)
        except BaseException as exc:
            if not state.end(bound, call, exc):
                raise
            return default_value(bound.settings["default_result"], args, kwargs)
        state.end(bound, call, None)
        return value

    return wrapper
