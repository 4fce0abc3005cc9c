"""One decorated function: its key, its live plan, and what happens before and after the driver."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from qreward.callables import innermost
from qreward.events import Call
from qreward.runtime import clock
from qreward.runtime.gate import Gate
from qreward.runtime.registry import registry
from qreward.runtime.threads import ThreadGroup
from qreward.runtime.watch import passes_through
from qreward.schedule.config import UNSET, ScheduleConfig
from qreward.schedule.plan import Bound, bind
from qreward.telemetry.metrics import ScheduleMetrics

log = logging.getLogger("qreward.utils.scheduler.base")


def identity(func: Callable[..., Any]) -> tuple[str, str]:
    """(key, qualified name) of a function, partial, bound method or callable object."""
    inner = innermost(func)
    if not hasattr(inner, "__qualname__"):
        inner = type(inner)
    return f"{inner.__module__}.{inner.__qualname__}", inner.__qualname__


class Scheduled:
    """The state behind a decorated function. `bound` is swapped whole when the configuration changes."""

    def __init__(self, func: Callable[..., Any], config: ScheduleConfig, beside: Mapping[str, Any]) -> None:
        self.func = func
        self.beside = beside  # this function's own settings, in which it may differ from others with the same config
        self.base, self.name = identity(func)
        self.config = config
        self.threads = ThreadGroup()
        self.refresh(config)
        config.on_change(_weakly(self))

    def refresh(self, config: ScheduleConfig) -> None:
        """Read *config* again: calls that start now follow it, and the limits of calls that wait change at once."""
        bound = bind(config, self.beside)
        self.threads.resize(bound.settings["max_threads"] or None)
        registry.configure(self.base, self, bound.spec)
        self.bound: Bound = bound

    def gate(self, bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Gate:
        key_func = bound.settings["key_func"]
        if key_func is UNSET or key_func is None:
            return registry.gate(self.base, self.base)
        return registry.gate(self.base, f"{self.base}.{key_func(*args, **kwargs)}")

    def begin(self, bound: Bound, gate: Gate) -> Call:
        call = Call(gate.key, self.name, bound.priority, clock.monotonic())
        if bound.observer is not None:
            _guard(bound.observer.call_started, call)
        return call

    def end(self, bound: Bound, call: Call, error: BaseException | None, replaceable: bool = True) -> bool:
        """Close the books; True when *error* is to be replaced by the default result. Never raises."""
        call.ended = clock.monotonic()
        call.error = error
        use_default = False
        if error is None:
            call.outcome = "ok"
        elif passes_through(error):
            call.outcome = "cancelled"
        else:
            use_default = replaceable and bound.settings["default_result"] is not UNSET
            call.outcome = "default" if use_default else (call.outcome or "error")
        settings = bound.settings
        if bound.observer is not None:
            _guard(bound.observer.call_ended, call)
        if settings["debug"]:
            _describe(call)
        if settings["metrics_callback"] is not None:
            _guard(settings["metrics_callback"], ScheduleMetrics.of(call))
        return use_default


def _weakly(state: Scheduled) -> Callable[[ScheduleConfig], None]:
    """A function that is gone must not go on setting the limits of its key: the configuration does not hold it."""
    reference = weakref.ref(state)

    def refresh(config: ScheduleConfig) -> None:
        alive = reference()
        if alive is not None:
            alive.refresh(config)

    return refresh


def default_value(default: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The default result; a callable is called with the arguments of the call."""
    return default(*args, **kwargs) if callable(default) else default


def _guard(callback: Callable[[Any], Any], argument: Any) -> None:
    """Call back; what goes wrong there is logged and never reaches the caller."""
    try:
        answer = callback(argument)
    except Exception:
        log.exception("callback %r failed", callback)
        return
    if inspect.iscoroutine(answer):
        answer.close()
        log.error("callback %r is a coroutine function; it must be a plain function", callback)


def _describe(call: Call) -> None:
    log.debug(
        "[schedule] %s: execute finish, %s in %.1f ms, waited %.1f ms, attempts=%d retries=%d hedges=%d%s",
        call.key,
        call.outcome,
        1e3 * call.latency_s,
        1e3 * call.wait_s,
        call.attempts,
        call.retries,
        call.hedges,
        "" if call.error is None else f", {type(call.error).__name__}: {call.error}",
    )
