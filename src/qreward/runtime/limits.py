"""The policies of one key bound together: what may start, and what results teach. No lock, no clock, no waiting."""

from __future__ import annotations

from typing import Any

from qreward.policy.adaptive import AdaptiveLimit
from qreward.policy.breaker import Breaker
from qreward.policy.budget import Budget
from qreward.policy.classify import Kind, Verdict
from qreward.policy.latency import LatencyWindow
from qreward.policy.rate import WindowRate
from qreward.runtime.spec import AdaptiveSpec, BreakerSpec, GateSpec

NEVER = float("inf")
_FAILURE_WEIGHT = 0.1  # of one result in the moving share of failures
_OVERLOAD_MEMORY_S = 2.0  # a server that pushed back this recently counts as busy


class Permit:
    """The right to make one attempt; ends with exactly one of `succeeded`, `failed` and `abandoned` of its gate."""

    __slots__ = ("generation", "started")

    def __init__(self, started: float, generation: int) -> None:
        self.started = started
        self.generation = generation


class Limits:
    """The owner passes the time and holds a lock around every call."""

    def __init__(self, spec: GateSpec) -> None:
        self.inflight = 0
        self.limit: float = NEVER
        self.latencies = LatencyWindow()
        self._failing = 0.0
        self._overloaded_at = -NEVER
        self._rate: WindowRate | None = None
        self._adaptive: AdaptiveLimit | None = None
        self._breaker: Breaker | None = None
        self._retries: Budget | None = None
        self._hedges: Budget | None = None
        self.apply(spec)

    # -- configuration ---------------------------------------------------------------------------------------------

    def apply(self, spec: GateSpec) -> None:
        """Enforce *spec* from now on; what was learned stays."""
        self.spec = spec
        self._apply_adaptive(spec.adaptive)
        self._apply_rate(spec)
        self._apply_breaker(spec.breaker)
        self._retries = _budget(self._retries, spec.retry_ratio, spec.retry_floor_per_s, spec.retry_burst)
        self._hedges = _budget(self._hedges, spec.hedge_ratio, 0.0, spec.hedge_burst)
        self._refresh_limit()

    def _apply_adaptive(self, spec: AdaptiveSpec | None) -> None:
        if spec is None:
            self._adaptive = None
            return
        if self._adaptive is None:
            self._adaptive = AdaptiveLimit(spec.initial, spec.minimum, spec.maximum)
        self._adaptive.configure(
            spec.minimum,
            spec.maximum,
            error_threshold=spec.error_threshold,
            latency_threshold_s=spec.latency_threshold_s,
            window_s=spec.window_s,
        )

    def _apply_rate(self, spec: GateSpec) -> None:
        if spec.rate_size is None:
            self._rate = None
            return
        size = spec.rate_size
        if self._adaptive is not None and spec.adaptive is not None and spec.adaptive.drives_rate:
            size = self._adaptive.limit
        if self._rate is None:
            self._rate = WindowRate(size, spec.rate_window_s)
        else:
            self._rate.configure(size, spec.rate_window_s)

    def _apply_breaker(self, spec: BreakerSpec | None) -> None:
        if spec is None:
            self._breaker = None
            return
        if self._breaker is None:
            self._breaker = Breaker(spec.threshold, spec.recovery_s)
        self._breaker.configure(spec.threshold, spec.recovery_s, failure_rate=spec.failure_rate, window_s=spec.window_s)

    def _refresh_limit(self) -> None:
        limit = NEVER if self.spec.concurrency is None else self.spec.concurrency
        if self._adaptive is not None:
            limit = min(limit, self._adaptive.limit)
            if limit != self.limit and self._rate is not None and self.spec.adaptive and self.spec.adaptive.drives_rate:
                self._rate.configure(self._adaptive.limit, self.spec.rate_window_s)
        self.limit = limit

    # -- starting --------------------------------------------------------------------------------------------------

    def count(self, now: float) -> None:
        """A call begins; the budgets for its extra attempts grow."""
        if self._retries is not None:
            self._retries.deposit(now)
        if self._hedges is not None:
            self._hedges.deposit(now)

    def blocked(self, now: float) -> float:
        """Seconds until an attempt may start; 0.0 = now, infinity = when another ends."""
        if self.inflight >= self.limit:
            return NEVER
        wait = 0.0 if self._rate is None else self._rate.wait(now)
        return wait if self._adaptive is None else max(wait, self._adaptive.wait(now))

    def grant(self, now: float) -> Permit | None:
        """A permit, or None when the breaker refuses. The caller has checked `blocked`."""
        generation = 0 if self._breaker is None else self._breaker.admit(now)
        if generation is None:
            return None
        self.inflight += 1
        if self._rate is not None:
            self._rate.take(now)
        if self._adaptive is not None:
            self._adaptive.started(now, self.inflight)
        return Permit(now, generation)

    def open_for(self, now: float) -> float:
        """Seconds until the breaker allows the next probe; 0.0 while it allows calls."""
        return 0.0 if self._breaker is None else self._breaker.retry_after(now)

    def may_hedge(self, now: float) -> bool:
        """Take a duplicate from the budget; never while the breaker is not closed or the server pushed back."""
        if self.blocked(now) > 0.0 or now - self._overloaded_at < _OVERLOAD_MEMORY_S:
            return False
        if self._breaker is not None and self._breaker.state(now) != "closed":
            return False
        return self._hedges is None or self._hedges.withdraw(now)

    def retry_wait(self, now: float, patience_s: float) -> float:
        """Take a retry from the budget; the seconds to wait before it may go, infinity when more than *patience_s*."""
        return 0.0 if self._retries is None else self._retries.reserve(now, patience_s)

    # -- results ---------------------------------------------------------------------------------------------------

    def succeeded(self, now: float, permit: Permit, waiting: int) -> None:
        """The attempt answered."""
        latency = now - permit.started
        self._failing -= _FAILURE_WEIGHT * self._failing
        self.latencies.add(latency)
        if self._breaker is not None:
            self._breaker.success(now, permit.generation)
        if self._adaptive is not None:
            # While others wait, the limit is what holds them back, whether it counts attempts or starts per window.
            pressed = max(self.inflight, int(self.limit)) if waiting else self.inflight
            self._adaptive.succeeded(now, permit.started, latency, pressed)
        self._leave()

    def failed(self, now: float, permit: Permit, exc: BaseException, verdict: Verdict) -> None:
        """The attempt raised. A client's own error (4xx) says nothing against the server."""
        blame = verdict.kind is not Kind.CLIENT
        if blame:
            self._failing += _FAILURE_WEIGHT * (1.0 - self._failing)
        if verdict.kind is Kind.OVERLOAD:
            self._overloaded_at = now
        if self._breaker is not None:
            settle = self._breaker.failure if blame else self._breaker.success
            settle(now, permit.generation)
        if self._adaptive is not None:
            _teach(self._adaptive, now, permit, exc, verdict)
        self._leave()

    def abandoned(self, now: float, permit: Permit) -> None:
        """The attempt was cancelled or lost a race: it measured nothing."""
        if self._breaker is not None:
            self._breaker.abandon(now, permit.generation)
        if self._adaptive is not None:
            self._adaptive.ignored(now, permit.started)
        self._leave()

    def _leave(self) -> None:
        self.inflight = max(0, self.inflight - 1)
        if self._adaptive is not None:
            self._refresh_limit()

    # -- state -----------------------------------------------------------------------------------------------------

    def load(self, now: float) -> float:
        """0.0 (idle, healthy) to 1.0 (full, failing, or told off a moment ago)."""
        if now - self._overloaded_at < _OVERLOAD_MEMORY_S:
            return 1.0
        return min(1.0, max(self.inflight / self.limit, 2.0 * self._failing))

    @property
    def memory_s(self) -> float:
        """How long the past matters to what may start."""
        recovery = 0.0 if self.spec.breaker is None else 2.0 * self.spec.breaker.recovery_s
        return max(2.0 * self.spec.rate_window_s, recovery)

    def snapshot(self, now: float) -> dict[str, Any]:
        """The state for people and dashboards."""
        return {
            "inflight": self.inflight,
            "limit": None if self.limit == NEVER else self.limit,
            "rate": None if self._adaptive is None else self._adaptive.rate,
            "breaker": None if self._breaker is None else self._breaker.state(now),
            "failing": round(self._failing, 4),
            "p50_s": self.latencies.quantile(0.5),
            "p95_s": self.latencies.quantile(0.95),
            "hedge_budget": None if self._hedges is None else self._hedges.available(now),
            "retry_budget": None if self._retries is None else self._retries.available(now),
            "adaptive": None if self._adaptive is None else self._adaptive.snapshot(),
        }


def _budget(old: Budget | None, ratio: float | None, floor_per_s: float, burst: float) -> Budget | None:
    if ratio is None:
        return None
    if old is not None and (old.ratio, old.floor_per_s, old.burst) == (ratio, floor_per_s, burst):
        return old
    return Budget(ratio, floor_per_s, burst)


def _teach(adaptive: AdaptiveLimit, now: float, permit: Permit, exc: BaseException, verdict: Verdict) -> None:
    if verdict.kind is Kind.OVERLOAD:
        adaptive.overloaded(now, permit.started, verdict.retry_after_s, verdict.status)
    elif verdict.kind is Kind.TRANSIENT:
        adaptive.failed(now, permit.started, isinstance(exc, TimeoutError) or "Timeout" in type(exc).__name__)
    else:
        adaptive.ignored(now, permit.started)
