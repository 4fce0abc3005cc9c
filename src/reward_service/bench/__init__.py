"""Closed-loop load on a running service: latency percentiles, throughput, failures, a plot."""

from reward_service.bench.load import Point, Result, Target, measure
from reward_service.bench.plan import Plan
from reward_service.bench.stats import Level, levels

__all__ = ["Level", "Plan", "Point", "Result", "Target", "levels", "measure"]
