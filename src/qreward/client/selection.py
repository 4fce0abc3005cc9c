"""Choosing one of several proxies by strategy; used by managers and by model routes."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from qreward.client.load_balancer import LoadBalanceStrategy
from qreward.policy.balance import (
    LeastConnectionsSelector,
    RoundRobinSelector,
    WeightedRoundRobinSelector,
    power_of_two,
)
from qreward.runtime.gate import Gate


def gate_of(proxy: Any) -> Gate | None:
    """The gate of a real proxy; None for a stand-in."""
    gate = getattr(proxy, "_gate", None)
    return gate if isinstance(gate, Gate) else None


def busy(proxy: Any) -> float:
    """Calls that a proxy has to deal with."""
    gate = gate_of(proxy)
    return 0.0 if gate is None else gate.inflight + gate.waiting


def expected_s(proxies: Mapping[str, Any]) -> dict[str, float]:
    """Seconds that one more call is expected to take at each, up to a common factor.

    One that has not answered yet is taken for as slow as the slowest known: its calls in flight then tell them apart.
    """
    means = {key: gate.mean_s for key, proxy in proxies.items() if (gate := gate_of(proxy)) is not None}
    slowest = max((mean for mean in means.values() if mean is not None), default=1.0)
    return {key: (means.get(key) or slowest) * (busy(proxy) + 1.0) for key, proxy in proxies.items()}


class Selection:
    """The state of all strategies for one set of proxies."""

    def __init__(self, strategy: LoadBalanceStrategy) -> None:
        self.strategy = strategy
        self.round_robin = RoundRobinSelector()
        self.weighted = WeightedRoundRobinSelector()
        self._least = LeastConnectionsSelector()

    def select(
        self,
        keys: Sequence[str],
        healthy: Collection[str],
        proxies: Mapping[str, Any],
        weights: Mapping[str, int],
    ) -> str | None:
        """The key that takes the next call, None when none is healthy."""
        if self.strategy is LoadBalanceStrategy.WEIGHTED_ROUND_ROBIN:
            return self.weighted.select(keys, healthy, weights)
        if self.strategy is LoadBalanceStrategy.LEAST_CONNECTIONS:
            return self._least.select(keys, healthy, lambda key: busy(proxies[key]))
        if self.strategy is LoadBalanceStrategy.LATENCY_AWARE:
            dice = random.random(), random.random()  # noqa: S311 - balance, not secrets
            eligible = [key for key in keys if key in healthy]
            cost = expected_s({key: proxies[key] for key in eligible})
            return power_of_two(eligible, cost.__getitem__, dice)
        return self.round_robin.select(keys, healthy)
