"""What the adaptive limit makes of servers that limit the rate: time and refusals against the evenly paced limit."""

from __future__ import annotations

import statistics

import pytest

from qreward.policy.adaptive import AdaptiveLimit

MEAN_LATENCY_S = 0.0425
SEEDS = range(1, 6)


def runs(sim, calls, callers=64, **bucket):
    """One result per seed for *calls* calls against a token bucket."""
    for seed in SEEDS:
        limit = AdaptiveLimit(16, 1, 1024)
        yield sim.Simulation(limit, sim.Bucket(**bucket), callers=callers, calls=calls, seed=seed).run()


@pytest.mark.parametrize("rate", [200, 1000])
def test_exact_retry_after(sim, rate):
    """Without being told the rate: 4 % over the paced limit at most, 1 % refused at most, none lost."""
    for result in runs(sim, 2000, rate=rate, burst=20):
        assert result.wall_s <= 1.04 * (2000 / rate + MEAN_LATENCY_S)
        assert result.rejected <= 20
        assert result.lost == 0


def test_the_same_without_learning_would_fail(sim):
    """A fixed limit of 16 against the same server loses calls or has a tenth of them refused."""
    server = sim.Bucket(rate=200, burst=20)
    result = sim.Simulation(sim.FixedLimit(16), server, callers=64, calls=2000, seed=1).run()
    assert result.lost or result.rejected > 200


@pytest.mark.parametrize("charge", [False, True])
@pytest.mark.parametrize("retry_after", ["exact", "ceil", "none"])
@pytest.mark.parametrize(("rate", "burst"), [(20, 20), (50, 5), (50, 50), (200, 20), (200, 200)])
def test_other_buckets(sim, rate, burst, retry_after, charge):
    """Whatever bucket, hint and price of a refusal: at most 15 % over the paced limit, at most 4 % refused."""
    for result in runs(sim, 1000, rate=rate, burst=burst, retry_after=retry_after, charge_rejected=charge):
        assert result.wall_s <= 1.15 * (1000 / rate + MEAN_LATENCY_S)
        assert result.rejected <= 40
        assert result.lost == 0


@pytest.mark.parametrize(("before", "after"), [(200, 100), (200, 50), (200, 400), (50, 200)])
def test_changed_rate_is_followed(sim, before, after):
    """Six seconds after the server's rate changes, calls are answered at the new one, and few were refused."""
    for result in runs(sim, 8 * before + 12 * after, rate=before, burst=20, changes=((8.0, after),)):
        assert result.throughput(14.0, 18.0) >= 0.93 * after
        assert sum(t > 8.0 for t in result.rejections) <= 30
        assert result.lost == 0


def test_quota_per_minute(sim):
    """A quota per fixed window is used up in each window, and a handful of calls is refused for it."""
    for seed in SEEDS:
        limit = AdaptiveLimit(16, 1, 1024)
        result = sim.Simulation(limit, sim.Window(quota=600), callers=64, calls=2400, seed=seed).run()
        # The windows begin at 0, 40, 100 and 160 s.
        assert result.wall_s <= 165.0
        assert result.rejected <= 30
        assert result.lost == 0


def test_failed_tests_are_remembered(sim):
    """A pace that was refused while it was tried is not tried again and again."""
    for result in runs(sim, 2000, rate=50, burst=5):
        assert result.rejected <= 30


@pytest.mark.parametrize(
    ("bucket", "slower", "refused"),
    [
        ({"rate": 200, "burst": 20}, 1.05, 65),
        ({"rate": 50, "burst": 20}, 1.02, 85),
        ({"rate": 200, "burst": 20, "charge_rejected": True}, 1.25, 210),
        ({"rate": 50, "burst": 5, "charge_rejected": True, "retry_after": "none"}, 1.15, 170),
    ],
)
def test_distant_server(sim, bucket, slower, refused):
    """Where a refusal takes 80 ms to be heard, the pace is still found, at the price of more refusals."""
    results = []
    for seed in SEEDS:
        limit = AdaptiveLimit(16, 1, 1024)
        results.append(sim.Simulation(limit, sim.Bucket(**bucket), calls=2000, seed=seed, way_s=0.04).run())
    assert statistics.median(r.wall_s for r in results) <= slower * (2000 / bucket["rate"] + MEAN_LATENCY_S + 0.08)
    assert statistics.median(r.rejected for r in results) <= refused
    assert sum(r.lost for r in results) == 0


def test_rate_limit_told_as_503(sim):
    """A rate limit that says 503 is found out by its frequent refusals and paced as well."""
    for result in runs(sim, 2000, rate=200, burst=20, status=503):
        assert result.wall_s <= 1.1 * (10.0 + MEAN_LATENCY_S)
        assert result.rejected <= 150
        assert result.lost == 0


def test_dear_refusals(sim):
    """Where each refusal stops everybody for three seconds, a dozen of them is enough for eight thousand calls."""
    for result in runs(sim, 8000, rate=200, burst=20, retry_after="fixed:3"):
        assert result.rejected <= 24
        assert result.wall_s <= 1.8 * 40.0
        assert result.lost == 0
