"""What the adaptive limit makes of servers that are perfect, full, slow, flaky, or change."""

from __future__ import annotations

import statistics

import pytest

from qreward.policy.adaptive import AdaptiveLimit

MEAN_LATENCY_S = 0.0425
SEEDS = range(1, 8)


def learn(sim, make_server, calls, callers, **thresholds):
    """(policy, result) per seed."""
    for seed in SEEDS:
        limit = AdaptiveLimit(16, 1, 1024, **thresholds)
        yield limit, sim.Simulation(limit, make_server(), callers=callers, calls=calls, seed=seed).run()


def told(sim, make_server, calls, callers, limit):
    """The median time of callers who are told the best limit."""
    return statistics.median(
        sim.Simulation(sim.FixedLimit(limit), make_server(), callers=callers, calls=calls, seed=seed).run().wall_s
        for seed in SEEDS
    )


@pytest.mark.parametrize("callers", [64, 256])
def test_perfect_server(sim, callers):
    """The ramp from 16 costs two round trips, nothing is refused, and the limit ends where the callers are."""
    best_s = told(sim, sim.Server, 4096, callers, callers)
    results = list(learn(sim, sim.Server, 4096, callers))
    assert statistics.median(r.wall_s for _, r in results) <= best_s + 2.0 * MEAN_LATENCY_S
    for limit, result in results:
        assert result.rejected == result.lost == 0
        assert limit.rate is None
        assert callers <= limit.limit <= callers + 2


@pytest.mark.parametrize(("capacity", "callers"), [(64, 256), (8, 64), (256, 512)])
@pytest.mark.parametrize("status", [503, 429])
def test_full_server(sim, capacity, callers, status):
    """A server that refuses what exceeds its capacity is kept busy, few calls are refused, none lost."""
    calls = max(2000, 32 * capacity)
    best_s = told(sim, sim.Server, calls, callers, capacity)
    results = list(learn(sim, lambda: sim.Capacity(capacity=capacity, status=status), calls, callers))
    assert statistics.median(r.wall_s for _, r in results) <= (1.3 if status == 503 else 1.6) * best_s
    for _, result in results:
        assert result.rejected <= 0.05 * calls
        assert result.lost == 0


def test_capacity_grows(sim):
    """A capacity that triples is used within three seconds."""
    for _, result in learn(sim, lambda: sim.Capacity(changes=((2.0, 192),)), 20_000, 256):
        assert result.throughput(5.0, 6.0) >= 0.85 * 192 / MEAN_LATENCY_S
        assert result.lost == 0


def test_capacity_shrinks(sim):
    """A capacity that falls to a quarter is found at once; from then on few calls are refused."""
    for limit, result in learn(sim, lambda: sim.Capacity(changes=((2.0, 16),)), 5000, 256):
        assert 12 <= limit.limit <= 20
        assert limit.rate is None or limit.rate <= 4 * 16 / MEAN_LATENCY_S
        assert sum(2.0 <= t < 2.5 for t in result.rejections) <= 60
        assert sum(t >= 2.5 for t in result.rejections) <= 0.05 * 2000
        assert result.lost == 0


def test_stalls(sim):
    """One call in a hundred that hangs for three seconds does not shrink the limit."""
    for limit, result in learn(sim, lambda: sim.Server(stall_share=0.01), 4096, 64):
        assert limit.limit >= 64
        assert result.lost == 0


def test_flaky_server(sim):
    """2 % of 500s and 1 % of resets are retried and do not shrink the limit."""
    for limit, result in learn(sim, lambda: sim.Server(error_share=0.02, reset_share=0.01), 4096, 64):
        assert result.failed > 60
        assert limit.limit >= 60
        assert limit.rate is None
        assert result.lost == 0


def test_failing_server(sim):
    """When most calls fail, the limit goes down."""
    for limit, _ in learn(sim, lambda: sim.Server(error_share=0.6), 2000, 64):
        assert limit.limit <= 16


def test_queueing_server(sim):
    """With a latency threshold the queue at the server stays as short as asked for, at full throughput."""
    for limit, result in learn(sim, lambda: sim.Server(slots=32), 16_000, 256, latency_threshold_s=0.1):
        # 32 slots of 42.5 ms each answer 753 calls a second; 75 calls in flight wait 100 ms.
        assert 40 <= limit.limit <= 90
        assert result.throughput(10.0, 15.0) >= 0.9 * 32 / MEAN_LATENCY_S


def test_queueing_server_without_threshold(sim):
    """Without a latency threshold a slow server is not taken for a full one."""
    for limit, _ in learn(sim, lambda: sim.Server(slots=32), 8000, 256):
        assert limit.limit >= 256
