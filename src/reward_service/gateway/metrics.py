"""Prometheus metrics of one gateway; most are read from its state when somebody asks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from reward_service.gateway.admission import ByteBudget
from reward_service.gateway.arena import Arena
from reward_service.gateway.group import RewardGroup

PREFIX = "reward_service"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """What `GET /metrics` shows, and the two things that are counted as they happen."""

    def __init__(self, groups: Mapping[str, RewardGroup], arena: Arena, bodies: ByteBudget) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(f"{PREFIX}_requests", "Answers of POST /score.", ["status"], registry=self._registry)
        self._seconds = Histogram(
            f"{PREFIX}_request_seconds", "Time to answer POST /score.", buckets=SECONDS, registry=self._registry
        )
        self._registry.register(_State(groups, arena, bodies))

    def answered(self, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(str(status)).inc()
        self._seconds.observe(seconds)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)


class _State(Collector):
    def __init__(self, groups: Mapping[str, RewardGroup], arena: Arena, bodies: ByteBudget) -> None:
        self._groups = groups
        self._arena = arena
        self._bodies = bodies

    def collect(self) -> Iterable[Metric]:
        in_flight = GaugeMetricFamily(f"{PREFIX}_bytes_in_flight", "Memory that requests hold.", labels=["kind"])
        in_flight.add_metric(["body"], self._bodies.used)
        in_flight.add_metric(["decoded"], self._arena.used)
        yield in_flight
        scored = CounterMetricFamily(f"{PREFIX}_scored_items", "Items answered with scores.", labels=["reward"])
        failed = CounterMetricFamily(f"{PREFIX}_failed_items", "Items that a scorer failed.", labels=["reward"])
        batches = CounterMetricFamily(f"{PREFIX}_batches", "Batches given to scorers.", labels=["reward"])
        restarts = CounterMetricFamily(f"{PREFIX}_restarts", "Restarts of scorer processes.", labels=["reward"])
        queued = GaugeMetricFamily(f"{PREFIX}_queued_items", "Items waiting for a reward.", labels=["reward"])
        ready = GaugeMetricFamily(f"{PREFIX}_ready_replicas", "Replicas that serve.", labels=["reward"])
        for name, group in self._groups.items():
            scored.add_metric([name], group.completed)
            failed.add_metric([name], group.failed_items)
            batches.add_metric([name], group.batches)
            restarts.add_metric([name], sum(replica.restarts for replica in group.replicas))
            queued.add_metric([name], group.queue.live())
            ready.add_metric([name], sum(replica.link is not None for replica in group.replicas))
        yield from (scored, failed, batches, restarts, queued, ready)
