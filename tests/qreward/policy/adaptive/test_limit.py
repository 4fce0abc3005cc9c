"""The concurrency side of the adaptive limit, event by event."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.adaptive import AdaptiveLimit

OUTCOMES = ("ok", "429", "503", "503 later", "error", "ignored")
EVENTS = st.lists(
    st.tuples(st.floats(0.0, 0.5), st.sampled_from(OUTCOMES), st.integers(1, 200), st.floats(0.0, 3.0)), max_size=300
)


def play(limit: AdaptiveLimit, events: list[tuple[float, str, int, float]]) -> list[tuple[int, int, str, int]]:
    """Feed *events* and return (limit before, limit after, outcome, in flight) of each."""
    now, seen = 0.0, []
    for gap_s, outcome, inflight, latency_s in events:
        now += gap_s
        limit.started(now, inflight)
        started_at, now = now, now + 0.001
        before = limit.limit
        if outcome == "ok":
            limit.succeeded(now, started_at, latency_s, inflight)
        elif outcome in ("429", "503"):
            limit.overloaded(now, started_at, 0.0123, int(outcome))
        elif outcome == "503 later":
            limit.overloaded(now, started_at, 30.0 * latency_s, 503)
        elif outcome == "error":
            limit.failed(now, started_at, False)
        else:
            limit.ignored(now, started_at)
        seen.append((before, limit.limit, outcome, inflight))
    return seen


@given(EVENTS, st.integers(1, 50), st.integers(0, 100), st.integers(1, 200), st.none() | st.floats(0.01, 2.0))
def test_bounds(events, minimum, room, initial, threshold_s):
    """Whatever happens, the limit stays within its bounds, and waits within the longest pause or the slowest rate."""
    limit = AdaptiveLimit(initial, minimum, minimum + room, rate_min=0.1, latency_threshold_s=threshold_s)
    assert all(minimum <= after <= minimum + room for _, after, _, _ in play(limit, events))
    assert limit.rate is None or (limit.rate >= 0.1 and math.isfinite(limit.rate))
    assert 0.0 <= limit.wait(sum(gap + 0.001 for gap, *_ in events)) <= 60.0 + len(events) / 0.1


@given(EVENTS)
def test_no_growth_below_the_limit(events):
    """The limit grows only by an answer that came while the limit was what held the callers."""
    limit = AdaptiveLimit(16, 1, 500)
    for before, after, outcome, inflight in play(limit, events):
        assert after <= before or (outcome == "ok" and inflight >= before)


@given(EVENTS)
def test_ignored_calls_measure_nothing(events):
    """A cancelled call changes neither limit nor rate."""
    limit = AdaptiveLimit(16, 1, 500)
    play(limit, events)
    before = limit.limit, limit.rate
    limit.ignored(1e6, 1e6 - 1.0)
    assert (limit.limit, limit.rate) == before


@pytest.mark.parametrize("status", [429, 503, None])
@pytest.mark.parametrize("together", [1, 2, 50])
def test_one_cut_per_episode(status, together):
    """Refusals of calls that were under way at the cut belong to it; the next one to start after it cuts again."""
    limit = AdaptiveLimit(100, 1, 500)
    for k in range(together):
        limit.started(0.001 * k, 50 + k)
    for k in range(together):
        limit.overloaded(0.1 + 0.001 * k, 0.001 * k, None, status)
    cut = 90 if status == 429 else int(0.9 * (50 + together - 1))
    assert limit.limit == cut
    limit.started(1.0, cut)
    limit.overloaded(1.1, 1.0, None, 503)
    assert limit.limit == int(0.9 * cut)


def test_a_cut_is_no_collapse():
    """However few calls are in flight, one overload takes little more than half of the limit."""
    limit = AdaptiveLimit(100, 1, 500)
    limit.started(0.0, 1)
    limit.overloaded(0.1, 0.0, None, 503)
    assert limit.limit == 45


def test_slow_start_triples_per_round_trip():
    """Until the first overload each answer under a full limit adds two."""
    limit = AdaptiveLimit(16, 1, 500)
    for k in range(16):
        limit.succeeded(0.04, 0.0, 0.04, 16 + 2 * k)
    assert limit.limit == 48


def test_growth_after_an_overload():
    """After a cut the limit recovers one per round trip, waits below the ceiling, and hurries once well above it."""
    limit = AdaptiveLimit(100, 1, 500)
    limit.started(0.0, 100)
    limit.overloaded(0.1, 0.0, None, 503)
    assert limit.limit == 90

    def answers_until(target: int) -> int:
        count = 0
        while limit.limit < target:
            limit.succeeded(1.0, 0.5, 0.04, limit.limit)
            count += 1
        return count

    assert 60 <= answers_until(91) <= 91
    answers_until(99)
    assert answers_until(100) >= 150
    answers_until(111)
    assert answers_until(112) <= 5


def test_no_growth_while_the_rate_holds():
    """Where a rate is known, callers who wait for it do not make the limit grow; a start that fills the limit does."""
    limit = AdaptiveLimit(20, 1, 500)
    limit.started(0.0, 20)
    limit.overloaded(0.1, 0.0, None, 429)
    limit.started(1.0, 5)
    for _ in range(4):
        limit.succeeded(1.1, 1.0, 0.1, 18)
    assert limit.limit == 18
    limit.started(2.0, 18)
    for _ in range(4):
        limit.succeeded(2.1, 2.0, 0.1, 18)
    assert limit.limit == 19


@pytest.mark.parametrize("timeout", [False, True])
def test_lone_failures_say_nothing_about_load(timeout):
    """Failures up to the threshold leave the limit alone; a larger share cuts it, once for all that were under way."""
    limit = AdaptiveLimit(50, 1, 500, error_threshold=0.3)
    for k in range(1000):
        if k % 10 >= 7:
            limit.failed(1.0, 0.5, timeout)
        else:
            limit.succeeded(1.0, 0.5, 0.04, 10)
    assert limit.limit == 50
    for _ in range(1000):
        limit.failed(1.5, 0.5, timeout)
    assert limit.limit == 45


def test_old_failures_are_forgotten():
    """A failure counts for no longer than the window."""
    limit = AdaptiveLimit(50, 1, 500, window_s=10.0)
    for _ in range(19):
        limit.failed(1.0, 0.5, False)
    for now in (20.0, 21.0, 22.0):
        limit.failed(now, now - 0.1, False)
    assert limit.limit == 50


def test_latency_threshold():
    """A mean latency above the threshold under a nearly full limit cuts once; lazy callers are spared."""
    limit = AdaptiveLimit(50, 1, 500, latency_threshold_s=0.1)
    for _ in range(200):
        limit.succeeded(1.0, 0.5, 0.2, 30)
    assert limit.limit == 50
    for _ in range(200):
        limit.succeeded(1.0, 0.5, 0.2, 50)
    assert limit.limit == 45
    for _ in range(200):
        limit.succeeded(2.0, 1.5, 0.05, 45)
    assert limit.limit > 45


def test_unasked_latency_is_no_overload():
    """Without a threshold no latency cuts the limit."""
    limit = AdaptiveLimit(50, 1, 60)
    for _ in range(1000):
        limit.succeeded(100.0, 0.5, 99.5, 60)
    assert limit.limit == 60


@pytest.mark.parametrize(
    ("hint_s", "pause_s"), [(2.0, 2.0), (30.0, 30.0), (3600.0, 60.0), (math.inf, 60.0), (1.0, 0.0), (None, 0.0)]
)
@pytest.mark.parametrize("status", [429, 503])
def test_long_retry_after_pauses_everybody(hint_s, pause_s, status):
    """A Retry-After of two seconds or more stops all starts, for a minute at most; a single second is rounding."""
    limit = AdaptiveLimit(50, 1, 500)
    for k in range(30):
        limit.started(10.0 + 0.001 * k, 1)
    limit.overloaded(10.03, 10.029, hint_s, status)
    assert limit.wait(10.03) == pytest.approx(pause_s, abs=0.02)
    assert limit.wait(10.03 + pause_s + 0.02) == 0.0


@pytest.mark.parametrize("hint_s", [math.nan, -1.0])
def test_senseless_retry_after_is_ignored(hint_s):
    """A Retry-After that is no duration counts as none."""
    limit, plain = AdaptiveLimit(50, 1, 500), AdaptiveLimit(50, 1, 500)
    limit.started(0.0, 1)
    plain.started(0.0, 1)
    limit.overloaded(0.1, 0.0, hint_s, 429)
    plain.overloaded(0.1, 0.0, None, 429)
    assert (limit.rate, limit.wait(0.1)) == (plain.rate, plain.wait(0.1))


def test_configure_keeps_what_was_learned():
    """New bounds apply at once; limit and rate within them stay."""
    limit = AdaptiveLimit(50, 1, 500)
    limit.started(0.0, 50)
    limit.overloaded(0.1, 0.0, 0.05, 429)
    rate = limit.rate
    limit.configure(1, 200)
    assert (limit.limit, limit.rate) == (45, rate)
    limit.configure(1, 20)
    assert (limit.limit, limit.rate) == (20, rate)
    limit.configure(100, 200)
    assert limit.limit == 100


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"minimum": 5, "maximum": 4}, "5 and 4"),
        ({"minimum": 0, "maximum": 4}, "0 and 4"),
        ({"error_threshold": 0.0}, r"error_threshold.*0\.0"),
        ({"error_threshold": 1.5}, r"error_threshold.*1\.5"),
        ({"window_s": 0.0}, "window_s"),
        ({"latency_threshold_s": 0.0}, "latency_threshold_s"),
        ({"rate_min": 0.0}, "rate_min"),
    ],
)
def test_contradictions_are_refused(wrong, message):
    """Bounds and thresholds that cannot work are a ValueError that names them."""
    with pytest.raises(ValueError, match=message):
        AdaptiveLimit(**{"initial": 4, "minimum": 1, "maximum": 8, **wrong})


def test_snapshot():
    """The snapshot tells limit, bounds, rate, share of failures and mean latency of the window."""
    limit = AdaptiveLimit(16, 1, 64)
    for _ in range(3):
        limit.succeeded(1.0, 0.9, 0.1, 1)
    limit.failed(1.0, 0.9, False)
    assert limit.snapshot() == {
        "limit": 16,
        "minimum": 1,
        "maximum": 64,
        "rate": None,
        "slow_start": True,
        "error_share": 0.25,
        "latency_s": pytest.approx(0.1),
        "refused_share": 0.0,
    }
