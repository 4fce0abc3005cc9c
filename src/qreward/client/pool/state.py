"""What a pool knows about one source: health, speed, quotas, spend."""

from __future__ import annotations

from typing import Any

from qreward.policy.health import Health
from qreward.policy.latency import LatencyWindow
from qreward.policy.quota import Quota
from qreward.policy.rate import WindowRate
from qreward.runtime.fork import renew_after_fork

NEVER = float("inf")


class SourceState:
    """Kept by the dispatcher under its lock."""

    def __init__(self, max_concurrent: int, requests_per_min: float | None, tokens_per_min: float | None) -> None:
        self.max_concurrent = max_concurrent
        self.inflight = 0
        self.done = 0
        self.failures = 0
        self.spend = 0.0
        self.latencies = LatencyWindow()
        self.health = Health()
        self.paused_until = 0.0
        self.last_answer = -NEVER
        self.rate = None if requests_per_min is None else _rate(requests_per_min)
        self.tokens = None if tokens_per_min is None else Quota(tokens_per_min)
        renew_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child no task is under way."""
        self.inflight = 0
        self.health.released()

    @property
    def mean_s(self) -> float | None:
        """The moving mean of the latencies; None before the first answer."""
        return self.latencies.mean_s

    def wait(self, now: float, tokens: float) -> float:
        """Seconds until pauses and quotas allow a task of *tokens*; health and room are asked elsewhere."""
        wait = max(0.0, self.paused_until - now)
        if self.rate is not None:
            wait = max(wait, self.rate.wait(now))
        if self.tokens is not None:
            wait = max(wait, self.tokens.wait(now, tokens))
        return wait

    def in_service(self, now: float) -> bool:
        """Whether neither its health nor a pause keeps tasks away."""
        return self.paused_until <= now and self.health.may_try(now)

    def started(self, now: float, tokens: float) -> None:
        """A task goes out."""
        self.inflight += 1
        if self.rate is not None:
            self.rate.take(now)
        if self.tokens is not None:
            self.tokens.reserve(now, tokens)

    def answered(self, now: float, latency_s: float, reserved: float, used: float | None) -> None:
        """It came back."""
        self.inflight -= 1
        self.done += 1
        self.last_answer = now
        self.latencies.add(latency_s)
        self.health.answered(now)
        if self.tokens is not None and used is not None:
            self.tokens.settle(now, reserved, used)

    def released(self, now: float, reserved: float) -> None:
        """It ended without an answer; what it reserved is given back."""
        self.inflight -= 1
        if self.tokens is not None:
            self.tokens.settle(now, reserved, 0.0)

    def pause(self, now: float, seconds: float) -> None:
        """Ask nothing for *seconds*."""
        self.paused_until = max(self.paused_until, now + seconds)

    def returns_in(self, now: float) -> float:
        """Seconds until it is in service again; 0.0 when it is."""
        return max(self.paused_until - now, self.health.returns_in(now), 0.0)

    def status(self, now: float) -> str:
        """healthy, paused, ejected or probing."""
        if self.paused_until > now:
            return "paused"
        return self.health.state(now)

    def snapshot(self, now: float) -> dict[str, Any]:
        """For people and dashboards."""
        return {
            "state": self.status(now),
            "inflight": self.inflight,
            "max_concurrent": self.max_concurrent,
            "done": self.done,
            "failures": self.failures,
            "mean_s": self.mean_s,
            "p50_s": self.latencies.quantile(0.5),
            "p95_s": self.latencies.quantile(0.95),
            "requests_left": None if self.rate is None else self.rate.left(now),
            "tokens_left": None if self.tokens is None else max(0.0, self.tokens.left(now)),
            "spend": self.spend,
            "returns_in_s": self.returns_in(now),
        }


def _rate(per_minute: float) -> WindowRate:
    """Requests per minute, paced so that any window of a minute (or of one request) keeps the quota."""
    return WindowRate(per_minute, 60.0) if per_minute >= 1 else WindowRate(1, 60.0 / per_minute)
