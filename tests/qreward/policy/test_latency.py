"""LatencyWindow and the hedging delays that come from it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.hedge import HedgePolicy, parse_hedge_time
from qreward.policy.latency import LatencyWindow


def is_quantile(value: float | None, samples: list[float], percent: int) -> bool:
    """Whether *value* is the smallest sample that *percent* of the samples do not exceed, in whole numbers."""
    enough = [s for s in samples if 100 * sum(other <= s for other in samples) >= percent * len(samples)]
    return value == min(enough)


@given(
    size=st.integers(20, 60),
    batches=st.lists(st.lists(st.floats(0.001, 100.0), min_size=1, max_size=80), min_size=1, max_size=6),
    percent=st.integers(1, 100),
)
def test_quantiles_are_exact_at_every_moment(size: int, batches: list[list[float]], percent: int) -> None:
    """Over the last *size* samples, whenever it is asked, however many came in between."""
    window = LatencyWindow(size=size)
    seen: list[float] = []
    for batch in batches:
        for sample in batch:
            window.add(sample)
        seen = (seen + batch)[-size:]
        assert window.count == len(seen)
        if len(seen) < 20:
            assert window.quantile(percent / 100) is None
        else:
            assert is_quantile(window.quantile(percent / 100), seen, percent)


def test_every_percent_of_a_hundred_samples_is_its_sample() -> None:
    """0.07 × 100 is a little more than 7 in floats; the seventh sample is meant."""
    window = LatencyWindow()
    for i in range(100):
        window.add(i + 1.0)
    assert [window.quantile(percent / 100) for percent in range(1, 101)] == [float(p) for p in range(1, 101)]


def test_quantiles_follow_every_new_sample() -> None:
    """Asked after each sample, the median moves from the old level to the new one when half of them are new."""
    window = LatencyWindow(size=100)
    for _ in range(100):
        window.add(1.0)
    medians = []
    for _ in range(100):
        window.add(5.0)
        medians.append(window.quantile(0.5))
    assert medians == [1.0] * 50 + [5.0] * 50


def test_the_order_is_dropped_when_nobody_asks() -> None:
    """A thousand samples after the last question, adding costs no search any more, and the next answer is right."""
    window = LatencyWindow(size=1000)
    for i in range(1000):
        window.add(float(i))
    assert window.quantile(0.5) == 499.0
    assert window._sorted is not None
    for i in range(1001):
        window.add(float(i % 10))
    assert window._sorted is None
    assert window.quantile(1.0) == 9.0


@pytest.mark.parametrize(
    ("value", "meaning"),
    [(0, (None, None)), (1.5, (1.5, None)), ("p95", (None, 0.95)), ("p99.5", (None, 0.995))],
)
def test_hedge_times_are_seconds_or_quantiles(value: float | str, meaning: tuple[float | None, float | None]) -> None:
    """Numbers are seconds, 0 is off, pNN is a quantile."""
    assert parse_hedge_time(value) == pytest.approx(meaning)


@pytest.mark.parametrize(
    "value", [-1, "95", "p0", "p100", "p150", "px", "pnan", "p 95", "p1e1", "", True, math.nan, math.inf, None]
)
def test_other_hedge_times_are_refused_by_value(value: object) -> None:
    """The message shows the value and what is understood."""
    with pytest.raises(ValueError, match="quantile such as 'p95'") as caught:
        parse_hedge_time(value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


def test_a_quantile_delay_is_unknown_before_samples() -> None:
    """No hedge before latencies are known; a fixed delay needs none; a quantile of zeros is no invitation to flood."""
    window = LatencyWindow()
    assert HedgePolicy(None, 0.95, 1).delay(window) is None
    assert HedgePolicy(0.2, None, 1).delay(window) == 0.2
    for i in range(100):
        window.add(i / 100)
    assert HedgePolicy(None, 0.95, 1).delay(window) == pytest.approx(0.94)
    for _ in range(1000):
        window.add(0.0)
    assert HedgePolicy(None, 0.95, 1).delay(window) == 0.001
