"""Limits of a judge: what is admitted, what is refused, and what the client is told; counting in windows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.testing import FakeJudge, Faults
from qreward.testing.counters import max_in_window
from qreward.testing.limits import Bucket, Limits

MODES = [("ceil", "2"), ("fixed:7", "7"), ("none", None)]


@pytest.mark.parametrize(("mode", "header"), MODES)
async def test_the_rate_limit_refuses_and_says_when(client, mode, header):
    """A bucket of one admits one request; the next gets 429 with the Retry-After that was asked for."""
    async with FakeJudge(rate=0.5, burst=1, retry_after=mode) as judge:
        assert (await client.chat(judge)).status == 200
        refused = await client.chat(judge)
        assert (refused.status, refused.headers.get("Retry-After")) == (429, header)
        assert (judge.counters.status(429), judge.counters.ok) == (1, 1)
        assert (len(judge.counters.arrived_at), len(judge.counters.admitted_at)) == (2, 1)


async def test_an_exact_retry_after_is_in_seconds_and_milliseconds(client):
    """By default a 429 says when a token is there, to the millisecond."""
    async with FakeJudge(rate=0.01, burst=1) as judge:
        await client.chat(judge)
        headers = (await client.chat(judge)).headers
        assert 90 < float(headers["Retry-After"]) <= 100
        assert float(headers["Retry-After-Ms"]) == pytest.approx(1000 * float(headers["Retry-After"]), abs=1)


async def test_keys_have_limits_of_their_own(client):
    """A limit on one API key leaves the others alone."""
    async with FakeJudge(key_rates={"k": 1.0}) as judge:
        keys = ("k", "k", "other", "other")
        assert [(await client.chat(judge, key=key)).status for key in keys] == [200, 429, 200, 200]


@pytest.mark.parametrize("path", ["/chat/completions", "/embeddings"])
async def test_tokens_per_minute_are_counted(client, path):
    """Once a minute's tokens are used up, requests get 429."""
    async with FakeJudge(tokens_per_min=2) as judge:
        body = {"messages": [{"role": "user", "content": "x" * 40}], "input": ["a", "b"]}
        assert [(await client.post(judge, path, body)).status for _ in range(2)] == [200, 429]


@given(
    rate=st.floats(0.1, 1000),
    burst=st.floats(1, 50),
    gaps=st.lists(st.floats(0, 0.2), min_size=2, max_size=100),
    charge=st.booleans(),
)
def test_no_window_admits_more_than_the_bucket(rate, burst, gaps, charge):
    """In any window at most its depth and what flows in meanwhile is admitted."""
    bucket, now, admitted = Bucket(), 0.0, []
    for gap in gaps:
        now += gap
        if bucket.take(now, rate, burst, charge) == 0.0:
            admitted.append(now)
    for i, start in enumerate(admitted):
        for count, end in enumerate(admitted[i:], 1):
            assert count <= burst + rate * (end - start) + 1e-6


@given(rate=st.floats(0.1, 1000), burst=st.floats(1, 10), early=st.floats(0.0, 0.9))
def test_the_wait_is_exact(rate, burst, early):
    """Who comes when the bucket said is admitted, and who comes before is not."""
    bucket = Bucket()
    while not (wait := bucket.take(5.0, rate, burst)):
        pass
    assert bucket.take(5.0 + early * wait, rate, burst) > 0
    assert bucket.take(5.0 + wait + 1e-9, rate, burst) == 0.0


def test_a_strict_bucket_charges_for_refusals():
    """With charge_rejected every refused request puts the next admission off, within bounds."""
    bucket = Bucket()
    waits = [bucket.take(0.0, 1.0, 2.0, charge_rejected=True) for _ in range(6)]
    assert waits == [0.0, 0.0, 2.0, 3.0, 3.0, 3.0]


def test_a_slow_rate_without_burst_admits_at_all():
    """Half a request per second is one every two seconds."""
    limits, faults = Limits(), Faults(rate=0.5)
    assert [limits.wait(now, faults, "k") for now in (0.0, 1.0, 2.0)] == [0.0, 1.0, 0.0]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 50)), min_size=1, max_size=40), st.integers(1, 300))
def test_the_minute_slides(uses, allowed):
    """A request is admitted while the last minute's tokens are fewer than allowed, and exactly then."""
    limits, faults, now, log = Limits(), Faults(tokens_per_min=allowed), 0.0, []
    for gap, tokens in uses:
        now += gap
        recent = [(at, used) for at, used in log if now - at < 60]
        wait = limits.wait(now, faults, "k")
        assert (wait == 0.0) == (sum(used for _, used in recent) < allowed)
        assert sum(used for at, used in recent if now + wait - at < 60 - 1e-6) < allowed
        log.append((now, tokens))
        limits.used(now, tokens)


@given(st.lists(st.integers(0, 100), max_size=40), st.integers(1, 50))
def test_the_largest_number_in_a_window(times, window):
    """It is that of the fullest half-open window that starts with an event."""
    fullest = max((sum(start <= t < start + window for t in times) for start in times), default=0)
    assert max_in_window(times, window) == fullest
