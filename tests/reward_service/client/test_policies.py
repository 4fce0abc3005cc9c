"""The pure decisions: how to cut, how long to wait, whom to ask."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.client.chunking import split
from reward_service.client.endpoints import MAX_REST_S, Endpoints
from reward_service.client.retry import MAX_BACKOFF_S, MAX_RETRY_AFTER_S, backoff, retry_after

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    max_items=st.none() | st.integers(1, 9),
    max_bytes=st.integers(1, 100),
)
def test_parts_cover_the_call_in_order_within_the_limits(sizes, max_items, max_bytes):
    """Nothing is lost, nothing is twice, and only an entry that is too large alone breaks the byte limit."""
    ranges = split(sizes, max_items, max_bytes)
    assert [index for part in ranges for index in part] == list(range(len(sizes)))
    for part in ranges:
        assert len(part) >= 1
        assert max_items is None or len(part) <= max_items
        assert len(part) == 1 or sum(sizes[index] for index in part) <= max_bytes


@given(sizes=st.lists(st.integers(1, 50), min_size=2, max_size=60), max_bytes=st.integers(1, 100))
def test_no_part_is_smaller_than_it_must_be(sizes, max_bytes):
    """The first entry of a part did not fit into the part before it."""
    ranges = split(sizes, None, max_bytes)
    for left, right in pairwise(ranges):
        assert sum(sizes[index] for index in left) + sizes[right.start] > max_bytes


@given(attempt=st.integers(1, 2000), first=st.floats(0, 100), roll=st.floats(0, 1, exclude_max=True))
def test_the_backoff_is_bounded_and_grows_with_the_roll(attempt, first, roll):
    """Between 0 and the bound, whatever comes in."""
    pause = backoff(attempt, first, roll)
    assert 0 <= pause <= max(MAX_BACKOFF_S, first)
    assert pause <= backoff(attempt + 1, first, roll)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-5", None),
        ("inf", None),
        ("86400", MAX_RETRY_AFTER_S),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("Fri, 02 Jan 2026 03:04:15 -0000", 10.0),
    ],
)
def test_retry_after_in_both_notations(value, seconds):
    """Seconds or a date; never negative, never unbounded."""
    assert retry_after(value, NOW) == seconds


def failed(endpoints, endpoint, now, asked_s=None):
    """A request that began just before *now* failed."""
    endpoints.started(endpoint, 1)
    endpoints.finished(endpoint, 1)
    endpoints.failed(endpoint, now, now, asked_s)


def test_rests_grow_and_end_with_a_success():
    """1, 2, 4 … seconds up to the maximum; one answer forgives all."""
    endpoints = Endpoints(["http://a"])
    endpoint = endpoints.pick(0.0)
    now, rests = 0.0, []
    for _ in range(9):
        failed(endpoints, endpoint, now)
        rests.append(endpoint.rest_until - now)
        now = endpoint.rest_until
    assert rests[:4] == [1.0, 2.0, 4.0, 8.0]
    assert rests[-1] == MAX_REST_S
    endpoints.succeeded(endpoint)
    assert not endpoint.resting(now)
    failed(endpoints, endpoint, now)
    assert endpoint.rest_until - now == 1.0


def test_a_burst_of_failures_is_one_failure():
    """Forty requests that were under way together do not lengthen the rest."""
    endpoints = Endpoints(["http://a"])
    endpoint = endpoints.pick(0.0)
    for _ in range(40):
        endpoints.failed(endpoint, 1.0, 5.0, None)
    assert endpoint.rest_until == 6.0


def test_after_its_rest_one_request_probes():
    """The second goes to the healthy one until the probe is back."""
    endpoints = Endpoints(["http://a", "http://b"])
    first = endpoints.pick(0.0)
    failed(endpoints, first, 0.0)
    other = endpoints.pick(0.5)
    assert other is not first
    endpoints.started(other, 5)
    assert endpoints.pick(0.5) is other
    assert endpoints.pick(2.0) is first
    endpoints.started(first, 1)
    assert endpoints.pick(2.0) is other


def test_when_all_rest_the_first_to_wake_is_asked():
    """A rest guides the choice and never blocks it; waiting for the shortest one costs the least."""
    endpoints = Endpoints(["http://a", "http://b", "http://c"])
    rested = []
    for asked in (5.0, 50.0, 20.0):
        rested.append(endpoints.pick(0.0))
        failed(endpoints, rested[-1], 0.0, asked_s=asked)
    assert len(set(rested)) == 3
    assert endpoints.pick(1.0) is rested[0]
    assert endpoints.pick(1.0, avoid=rested[0]) is rested[0]
    assert endpoints.pick(25.0, avoid=rested[0]) is rested[2]


def test_the_url_that_just_failed_comes_last_among_equals():
    """Also when its server asked for no pause at all."""
    endpoints = Endpoints(["http://a", "http://b"])
    first = endpoints.pick(0.0)
    other = endpoints.pick(0.0, avoid=first)
    assert other is not first
    endpoints.started(other, 9)
    assert endpoints.pick(0.0, avoid=first) is other


@given(items=st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_load_is_even(items):
    """With nothing finishing, no server is ahead by more than one request."""
    endpoints = Endpoints(["http://a", "http://b", "http://c"])
    for count in items:
        endpoints.started(endpoints.pick(0.0), count)
    loads = [endpoint.in_flight for endpoint in endpoints._all]
    assert max(loads) - min(loads) <= max(items)
