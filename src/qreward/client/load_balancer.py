"""The strategies by which a manager chooses among its endpoints."""

from __future__ import annotations

from enum import Enum

from qreward.policy.balance import LeastConnectionsSelector, RoundRobinSelector, WeightedRoundRobinSelector

__all__ = ["LeastConnectionsSelector", "LoadBalanceStrategy", "RoundRobinSelector", "WeightedRoundRobinSelector"]


class LoadBalanceStrategy(Enum):
    """ROUND_ROBIN: in turn. WEIGHTED_ROUND_ROBIN: in turn, by weight. LEAST_CONNECTIONS: the fewest calls in flight
    and waiting. LATENCY_AWARE: of two at random the one with the shorter expected time.
    """

    ROUND_ROBIN = "round_robin"
    WEIGHTED_ROUND_ROBIN = "weighted_round_robin"
    LEAST_CONNECTIONS = "least_connections"
    LATENCY_AWARE = "latency_aware"
