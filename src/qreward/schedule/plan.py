"""From a configuration to what the driver obeys: one immutable plan and the limits of the key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qreward.events import Observer
from qreward.policy.backoff import Backoff
from qreward.policy.hedge import HedgePolicy, parse_hedge_time
from qreward.policy.retry import RetryPolicy
from qreward.runtime.driver import Plan
from qreward.runtime.spec import AdaptiveSpec, BreakerSpec, GateSpec
from qreward.schedule.config import ScheduleConfig
from qreward.telemetry.otel import as_observer

_LONGEST_BACKOFF_S = 30.0
_BACKOFF_SPAN = 8.0  # the longest wait as a multiple of retry_interval: who asks for a second does not wait thirty


@dataclass(frozen=True, slots=True)
class Bound:
    """A configuration as it applies to the calls that start now."""

    plan: Plan
    stream_plan: Plan  # of async generators, which are raced only when hedge_streams asks for it
    spec: GateSpec
    priority: int
    observer: Observer | None
    settings: dict[str, Any]

    @property
    def in_caller_thread(self) -> bool:
        """A synchronous body that nothing can abandon runs in the thread that calls it."""
        return self.plan.timeout_s is None and self.plan.hedge is None and not self.settings["max_threads"]


def bind(config: ScheduleConfig, beside: Mapping[str, Any] | None = None) -> Bound:
    """Build everything from one consistent reading of *config*; what stands *beside* it wins."""
    values = {**config.snapshot(), **(beside or {})}
    plan = Plan(
        timeout_s=values["timeout"] or None,
        retry=_retry(values),
        hedge=_hedge(values),
        idempotent=bool(values["idempotent"]),
    )
    stream_plan = plan if values["hedge_streams"] else dataclasses.replace(plan, hedge=None)
    priority = min(9, max(0, int(values["priority"])))
    return Bound(plan, stream_plan, _spec(values, plan), priority, as_observer(values["telemetry_exporter"]), values)


def _retry(values: dict[str, Any]) -> RetryPolicy | None:
    if values["retry_times"] <= 0:
        return None
    base_s = values["retry_interval"]
    longest_s = max(base_s, min(_LONGEST_BACKOFF_S, _BACKOFF_SPAN * base_s))
    backoff = Backoff(base_s, max_s=longest_s, speed_up=max(1, values["speed_up_max_multiply"]))
    return RetryPolicy(values["retry_times"], backoff, values["exception_types"])


def _hedge(values: dict[str, Any]) -> HedgePolicy | None:
    delay_s, quantile = parse_hedge_time(values["hedged_request_time"])
    # The attempts of one call at any moment, the first included, never exceed speed_up_max_multiply.
    most = min(values["hedged_request_max_times"], max(1, values["speed_up_max_multiply"]) - 1)
    if (delay_s is None and quantile is None) or most <= 0 or not values["idempotent"]:
        return None
    return HedgePolicy(delay_s=delay_s, quantile=quantile, max_hedges=most)


def _spec(values: dict[str, Any], plan: Plan) -> GateSpec:
    size = values["limit_size"]
    adaptive = None
    if values["adaptive_limit"] and size > 0:
        low, high = values["adaptive_limit_min"], values["adaptive_limit_max"]
        adaptive = AdaptiveSpec(
            initial=min(high, max(low, size)),
            minimum=low,
            maximum=high,
            error_threshold=values["adaptive_error_threshold"],
            latency_threshold_s=values["adaptive_latency_threshold"] or None,
            window_s=values["adaptive_window_seconds"],
            drives_rate=True,
        )
    threshold = values["circuit_breaker_threshold"]
    breaker = None
    if threshold > 0:
        recovery, rate = values["circuit_breaker_recovery"], values["circuit_breaker_failure_rate"]
        breaker = BreakerSpec(threshold, recovery, failure_rate=rate)
    return GateSpec(
        rate_size=size if size > 0 and values["limit_window"] > 0 else None,
        rate_window_s=values["limit_window"],
        adaptive=adaptive,
        breaker=breaker,
        hedge_ratio=values["hedged_request_proportion"] if plan.hedge is not None else None,
        hedge_burst=max(2.0, values["hedged_request_max_times"]),
        retry_ratio=0.5 if plan.retry is not None else None,
    )
