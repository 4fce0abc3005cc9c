"""Backoff and RetryPolicy: bounded, jittered, polite, and never a way to hammer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.backoff import Backoff
from qreward.policy.classify import classify
from qreward.policy.retry import RetryPolicy

rolls = st.floats(0.0, 1.0, exclude_max=True)
loads = st.floats(0.0, 1.0)


@given(base=st.floats(0.001, 10.0), failures=st.integers(1, 1000), roll=rolls, load=loads)
def test_waits_stay_within_their_bounds(base: float, failures: int, roll: float, load: float) -> None:
    """Between nothing and the exponential ceiling, at most 30 s, whatever the number of failures."""
    wait = Backoff(base).wait(failures, roll, load)
    assert 0.0 <= wait <= min(30.0, base * 2.0 ** min(failures - 1, 60))


@given(failures=st.integers(1, 10), roll=rolls, a=loads, b=loads)
def test_a_busier_key_never_waits_less(failures: int, roll: float, a: float, b: float) -> None:
    """The wait grows with the load."""
    backoff = Backoff(1.0)
    low, high = sorted((a, b))
    assert backoff.wait(failures, roll, low) <= backoff.wait(failures, roll, high)


@given(roll=rolls, load=loads, asked=st.floats(0.0, 1e6))
def test_retry_after_wins(roll: float, load: float, asked: float) -> None:
    """A server that asks for time gets at least that, up to five minutes, and callers do not return in step."""
    wait = Backoff(0.001).wait(1, roll, load, asked)
    assert min(asked, 300.0) <= wait <= max(0.001, min(asked, 300.0) + 1.0)


def test_retry_after_shortens_a_wait_as_well() -> None:
    """After many failures, a server that says when it will be ready is asked then, and not half a minute later."""
    assert Backoff(1.0).wait(10, 0.99, 1.0, 0.5) <= 0.55
    assert Backoff(1.0).wait(10, 0.99, 1.0, 0.0) == 0.001


def test_callers_spread_over_the_interval() -> None:
    """The dice decide evenly between nothing and the ceiling; on an idle key within a fifth of it."""
    backoff = Backoff(1.0, speed_up=5.0)
    assert [backoff.wait(3, roll / 4, 1.0) for roll in range(1, 4)] == [1.0, 2.0, 3.0]
    assert [backoff.wait(3, roll / 4, 0.0) for roll in range(1, 4)] == pytest.approx([0.2, 0.4, 0.6])
    assert [backoff.wait(1, roll / 4, 1.0, 8.0) for roll in range(4)] == pytest.approx([8.0, 8.2, 8.4, 8.6])


@given(factor=st.floats(1.0, 1e300), failures=st.integers(1, 10**6), max_s=st.floats(0.01, 1e6))
def test_no_factor_and_no_number_of_failures_is_too_large(factor: float, failures: int, max_s: float) -> None:
    """The ceiling is max_s where the exponential leaves the floats."""
    assert Backoff(0.01, max_s=max_s, factor=factor).wait(failures, 0.999, 1.0) <= max_s


def test_no_interval_no_wait() -> None:
    """retry_interval=0 retries at once."""
    assert Backoff(0.0).wait(3, 0.9, 1.0) == 0.0


class Named(TypeError):
    pass


@pytest.mark.parametrize(
    ("exc", "types", "retried"),
    [
        (ValueError(), (BaseException,), True),
        (ValueError(), (KeyError,), False),
        (TypeError(), (Exception,), False),
        (TypeError(), (TypeError,), True),
        (Named(), (TypeError,), True),
        (NotImplementedError(), (RuntimeError,), True),
        (AssertionError(), (BaseException,), False),
    ],
)
def test_types_decide(exc: Exception, types: tuple[type[BaseException], ...], retried: bool) -> None:
    """Listed types are retried; programming errors only when they are named."""
    policy = RetryPolicy(1, Backoff(1.0), types)
    assert (policy.decide(exc, classify(exc), 1, 0.5, 1.0) is not None) == retried


def test_the_number_is_a_bound() -> None:
    """After max_retries failures beyond the first attempt there is no other."""
    policy, exc = RetryPolicy(2, Backoff(1.0)), ConnectionError()
    decided = [policy.decide(exc, classify(exc), failures, 0.5, 1.0) is not None for failures in (1, 2, 3)]
    assert decided == [True, True, False]


def test_a_call_that_may_not_be_repeated_is_repeated_only_when_it_was_not_sent() -> None:
    """idempotent=False: a refused connection is retried, a broken one is not."""
    policy = RetryPolicy(3, Backoff(1.0))
    refused, broken = ConnectionRefusedError(), ConnectionResetError()
    assert policy.decide(refused, classify(refused), 1, 0.5, 1.0, idempotent=False) is not None
    assert policy.decide(broken, classify(broken), 1, 0.5, 1.0, idempotent=False) is None
