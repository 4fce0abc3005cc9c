"""The settings of a scheduled function: validated together, replaced atomically, watched by their functions."""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from qreward.errors import ConfigError
from qreward.policy.hedge import parse_hedge_time


class Priority(IntEnum):
    """Names for the ends and the middle of the scale 0 (first) to 9 (last)."""

    HIGH = 0
    NORMAL = 5
    LOW = 9


class _Unset:
    def __repr__(self) -> str:
        return "<unset>"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET: Final[Any] = _Unset()
ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...] | None


@dataclass
class ScheduleConfig:
    """Every setting of `qreward.schedule.schedule`, which documents them; 0 means off.

    `update` validates the whole and then changes it in one step; `on_change` tells the functions that use it.
    """

    timeout: float = 0
    hedged_request_time: float | str = 0
    hedged_request_proportion: float = 0.05
    hedged_request_max_times: int = 2
    speed_up_max_multiply: int = 5
    retry_times: int = 0
    retry_interval: float = 1
    limit_size: int = 0
    limit_window: float = 1.0
    key_func: Any = UNSET
    exception_types: ExceptionTypes = (BaseException,)
    default_result: Any = UNSET
    debug: bool = False
    adaptive_limit: bool = False
    adaptive_limit_min: int = 10
    adaptive_limit_max: int = 500
    adaptive_error_threshold: float = 0.3
    adaptive_latency_threshold: float = 5.0
    adaptive_window_seconds: float = 10.0
    priority: int = Priority.NORMAL
    metrics_callback: Any = None
    circuit_breaker_threshold: int = 0
    circuit_breaker_recovery: float = 30.0
    circuit_breaker_failure_rate: float = 0.5
    telemetry_exporter: Any = None
    max_threads: int = 0
    hedge_streams: bool = False
    idempotent: bool = True
    _callbacks: list[Callable[[ScheduleConfig], None]] = field(default_factory=list, repr=False, compare=False)
    _lock: Any = field(default_factory=threading.RLock, repr=False, compare=False)

    def __post_init__(self) -> None:
        validate(self.snapshot())
        self.exception_types = normal_types(self.exception_types)

    @property
    def hedged_request_multiply(self) -> float:
        """How many calls pay for one hedge: 1/proportion − 1; 0 when hedging is off."""
        return 1 / self.hedged_request_proportion - 1 if self.hedged_request_time else 0

    def on_change(self, callback: Callable[[ScheduleConfig], None]) -> None:
        """Call *callback(config)* after every successful `update`."""
        with self._lock:
            self._callbacks.append(callback)

    def update(self, **changes: Any) -> None:
        """Apply *changes* together. Unknown names are ignored; an invalid value raises and changes nothing."""
        known = {name: value for name, value in changes.items() if name in FIELDS}
        with self._lock:
            validate({**self.snapshot(), **known})
            for name, value in known.items():
                setattr(self, name, normal_types(value) if name == "exception_types" else value)
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback(self)

    def snapshot(self) -> dict[str, Any]:
        """All settings by name, as they are at one moment."""
        with self._lock:
            return {name: getattr(self, name) for name in FIELDS}

    def adjust_wait_time(self, basic_wait_time: float, has_wait_time: float, max_wait_time: float) -> float:
        """*basic_wait_time* cut to what is left of *max_wait_time* (0 = no bound); a negative wait becomes 10 ms."""
        wait = 0.01 if basic_wait_time < 0 else basic_wait_time
        if max_wait_time > 0 and wait + has_wait_time > max_wait_time:
            wait = max(max_wait_time - has_wait_time, 0.01)
        return wait

    def get_max_wait_time(self, basic_wait_time: float, has_wait_time: float, max_wait_time: float) -> float:
        """Deprecated name of `adjust_wait_time`."""
        message = "get_max_wait_time is deprecated, it is called adjust_wait_time now"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return self.adjust_wait_time(basic_wait_time, has_wait_time, max_wait_time)


FIELDS: Final = tuple(f.name for f in dataclasses.fields(ScheduleConfig) if not f.name.startswith("_"))
DEFAULTS: Final = {f.name: f.default for f in dataclasses.fields(ScheduleConfig) if not f.name.startswith("_")}


def normal_types(types: ExceptionTypes) -> tuple[type[BaseException], ...]:
    if types is None:
        return (BaseException,)
    return (types,) if isinstance(types, type) else tuple(types)


def validate(values: dict[str, Any]) -> None:
    """Raise ConfigError (a ValueError) that names the field, the value and what is allowed."""
    for name in ("timeout", "retry_interval"):
        _require(values, name, lambda v: v >= 0, "must be >= 0")
    try:
        delay_s, quantile = parse_hedge_time(values["hedged_request_time"])
    except ValueError as exc:
        raise ConfigError(f"hedged_request_time: {exc}") from None
    if delay_s is not None or quantile is not None:
        _require(values, "hedged_request_proportion", lambda v: 1e-6 < v <= 1, "must be in (1e-06, 1]")
    if values["limit_size"] > 0:
        _require(values, "limit_window", lambda v: v > 0, "must be > 0")
    if values["circuit_breaker_threshold"] > 0:
        _require(values, "circuit_breaker_recovery", lambda v: v >= 0, "must be >= 0")
        _require(values, "circuit_breaker_failure_rate", lambda v: 0 < v <= 1, "must be in (0, 1]")
    if values["adaptive_limit"]:
        low, high = values["adaptive_limit_min"], values["adaptive_limit_max"]
        if not 1 <= low <= high:
            raise ConfigError(f"adaptive_limit_min must be in [1, adaptive_limit_max], got {low} and {high}")
        _require(values, "adaptive_error_threshold", lambda v: 0 < v <= 1, "must be in (0, 1]")
        _require(values, "adaptive_window_seconds", lambda v: v > 0, "must be > 0")


def _require(values: dict[str, Any], name: str, holds: Callable[[Any], bool], rule: str) -> None:
    value = values[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not holds(value):
        raise ConfigError(f"{name} {rule}, got {value!r}")
