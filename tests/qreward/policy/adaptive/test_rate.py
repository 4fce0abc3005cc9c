"""The learned rate: the estimate from anchors, the pace, and how it is forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.adaptive import AdaptiveLimit
from qreward.policy.refill import Anchor, RefillEstimator


class Bucket:
    """A token bucket without noise; the hint is the time to the next token."""

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst, self.level, self.at = rate, burst, burst, 0.0

    def take(self, now: float) -> float | None:
        self.level, self.at = min(self.burst, self.level + (now - self.at) * self.rate), now
        if self.level >= 1.0:
            self.level -= 1.0
            return None
        return (1.0 - self.level) / self.rate


def follow(limit: AdaptiveLimit, bucket: Bucket, starts: int, hint: bool, now: float = 0.0) -> tuple[float, int]:
    """Start *starts* calls as soon as allowed, half a millisecond apart at least; (time, refusals)."""
    refused = 0
    for _ in range(starts):
        now += max(0.0005, limit.wait(now))
        limit.started(now, 1)
        wait = bucket.take(now)
        if wait is None:
            limit.succeeded(now + 0.0001, now, 0.0001, 1)
        else:
            refused += 1
            limit.overloaded(now + 0.0001, now, wait if hint else None, 429)
    return now, refused


@given(st.floats(5.0, 1000.0), st.floats(2.0, 100.0), st.booleans())
def test_rate_is_found(rate, burst, hint):
    """Once learned, starts are admitted at 90 % of the true rate or more, and hardly any is refused."""
    limit, bucket = AdaptiveLimit(16, 1, 500), Bucket(rate, burst)
    now, _ = follow(limit, bucket, 1500, hint)
    later, refused = follow(limit, bucket, 1500, hint, now)
    # A bucket of depth 2 punishes any jitter.
    assert (1500 - refused) / (later - now) >= (0.9 if burst >= 5.0 else 0.85) * rate
    assert refused <= 30
    assert limit.rate is not None
    assert 0.85 * rate <= limit.rate <= 2.5 * rate


@given(st.floats(5.0, 500.0), st.floats(0.2, 0.8), st.booleans())
def test_drop_is_followed(rate, share, hint):
    """After the rate drops, twenty refusals are enough to come down to it, and to stay."""
    limit, bucket = AdaptiveLimit(16, 1, 500), Bucket(rate, 10.0)
    now, _ = follow(limit, bucket, 1000, hint)
    bucket.rate = rate * share
    now, refused = follow(limit, bucket, 300, hint, now)
    assert refused <= 20
    later, refused = follow(limit, bucket, 300, hint, now)
    assert refused <= 10
    assert (300 - refused) / (later - now) >= 0.85 * bucket.rate


@pytest.mark.parametrize("growth", [2.0, 4.0])
@pytest.mark.parametrize("rate", [50.0, 200.0])
def test_rise_is_followed(rate, growth):
    """After the rate rises, the pace reaches it within six seconds."""
    limit, bucket = AdaptiveLimit(16, 1, 500), Bucket(rate, 20.0)
    now, _ = follow(limit, bucket, 1000, True)
    bucket.rate = rate * growth
    risen = now
    while now < risen + 6.0:
        now, _ = follow(limit, bucket, 1, True, now)
    later, refused = follow(limit, bucket, 500, True, now)
    assert (500 - refused) / (later - now) >= 0.9 * bucket.rate


def learned() -> tuple[AdaptiveLimit, float]:
    """A limit that knows a rate well, and the moment of the latest refusal."""
    limit = AdaptiveLimit(16, 1, 500)
    bucket = Bucket(50.0, 10.0)
    now, _ = follow(limit, bucket, 500, True)
    refused = 0
    while not refused:
        now, refused = follow(limit, bucket, 1, True, now)
    return limit, now


def test_pauses_are_forgotten():
    """After a pause the pace is tried more rarely, but not for ever: a later rise is followed as ever."""
    limit, bucket = AdaptiveLimit(16, 1, 500), Bucket(50.0, 20.0)
    now, _ = follow(limit, bucket, 500, True)
    limit.started(now, 1)
    limit.overloaded(now + 0.001, now, 6.0, 503)
    now, _ = follow(limit, bucket, 8000, True, now)
    bucket.rate = 100.0
    now, _ = follow(limit, bucket, 600, True, now)
    later, refused = follow(limit, bucket, 500, True, now)
    assert (500 - refused) / (later - now) >= 90.0


def test_unused_rate_never_grows():
    """A rate that holds nobody back stays as it is."""
    limit, now = learned()
    rate = limit.rate
    for _ in range(500):
        now += 0.1
        assert limit.wait(now) == 0.0
        limit.started(now, 1)
        assert limit.rate in (rate, None)


def test_unused_rate_is_forgotten():
    """A minute after the last refusal a rate that holds nobody back is dropped."""
    limit, now = learned()
    limit.started(now + 59.0, 1)
    assert limit.rate is not None
    limit.started(now + 61.0, 1)
    assert limit.rate is None


def test_starts_are_evenly_spaced():
    """At most one start waits behind a late timer; the rest keep the distance of the pace."""
    limit, now = learned()
    assert limit.rate is not None
    for _ in range(20):
        now += limit.wait(now) + 0.002
        limit.started(now, 1)
        assert limit.wait(now) >= 1.0 / (1.1 * limit.rate) - 0.007


def test_long_hint_holds_one_call_only():
    """Once the rate is well known, an exact wait of a hundred tokens is for the refused call, not for everybody."""
    limit, now = learned()
    limit.started(now + 1.0, 1)
    limit.overloaded(now + 1.001, now + 1.0, 1.9, 429)
    assert limit.wait(now + 1.001) < 0.1


@given(st.floats(1.0, 500.0), st.lists(st.integers(1, 50), min_size=2, max_size=20))
def test_estimate_of_a_steady_bucket(rate, gaps):
    """Between moments at which the bucket is empty, admitted calls over time is the rate, whatever came in between."""
    estimator, at, admitted = RefillEstimator(), 0.0, 0
    for k, taken in enumerate(gaps):
        admitted += taken
        at += taken / rate
        found = estimator.add(Anchor(at, admitted, k, 0.0, 0.0, 0.5 / rate), False, 0.0)
    assert found.low <= rate <= found.high
    assert found.support == sum(gaps[1:][-12:])
    # One refused call between two anchors, of which it is not known yet whether it cost a token, is all the doubt.
    assert found.rate == pytest.approx(rate, rel=(len(gaps) + 1) / found.support)


def test_charge_is_recognised():
    """A wait for more than one token means that refused calls cost one; a wait for less means that they do not."""
    for tokens, charge in ((1.5, 1.0), (0.5, 0.0)):
        estimator = RefillEstimator()
        for k in range(20):
            estimator.add(Anchor(10.0 * k, 1000 * k, k, 0.0, 0.0, tokens / 100.0), False, 0.0)
        assert estimator.charge == charge
