"""Statuses and Retry-After, read from whatever an exception carries."""

from __future__ import annotations

import time
import warnings
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from http import HTTPStatus
from unittest.mock import MagicMock
from urllib.error import HTTPError

import aiohttp
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from qreward.policy.classify import Kind, classify
from qreward.policy.signals import parse_retry_after, retry_after_of, status_of


class Carrier(Exception):
    """An exception with these attributes."""

    def __init__(self, **attributes: object) -> None:
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("attributes", "status"),
    [
        ({"status_code": 429}, 429),
        ({"status": 503}, 503),
        ({"code": HTTPStatus.BAD_GATEWAY}, 502),
        ({"response": Carrier(status_code=418)}, 418),
        ({"response": Carrier(status=404)}, 404),
        ({"status_code": None, "status": 500}, 500),
        ({"code": "429"}, None),
        ({"code": 1006}, None),
        ({"status_code": True}, None),
        ({}, None),
    ],
)
def test_the_status_is_a_number_between_100_and_599(attributes: dict[str, object], status: int | None) -> None:
    """From the exception or its response; codes of other kinds are none."""
    assert status_of(Carrier(**attributes)) == status


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": "7"},
        {"RETRY-AFTER": "7"},
        {"retry-after": 7},
        {"Retry-After": b"7"},
        httpx.Headers({"Retry-After": "7"}),
        CIMultiDictProxy(CIMultiDict({"Retry-After": "7"})),
        {"Retry-After-Ms": "7000", "Retry-After": "1"},
        {"retry-after-ms": "soon", "retry-after": "7"},
    ],
)
def test_retry_after_is_found_by_any_spelling(headers: object) -> None:
    """On the response or on the exception; milliseconds are preferred where they are a number."""
    assert retry_after_of(Carrier(response=Carrier(headers=headers))) == 7.0
    assert retry_after_of(Carrier(headers=headers)) == 7.0


def test_the_headers_of_urllib_are_read() -> None:
    """Its message type folds case as well."""
    headers = Message()
    headers["Retry-After"] = "2.5"
    with HTTPError("http://x", 503, "m", headers, None) as exc:
        verdict = classify(exc)
    assert (verdict.kind, verdict.status, verdict.retry_after_s) == (Kind.OVERLOAD, 503, 2.5)


def test_an_attribute_wins_over_headers() -> None:
    """An exception that knows the time is believed; a time that is none is not."""
    headers = {"Retry-After": "9"}
    assert retry_after_of(Carrier(retry_after=1.5, headers=headers)) == 1.5
    for nonsense in (-1, float("nan"), float("inf"), True, "3"):
        assert retry_after_of(Carrier(retry_after=nonsense, headers=headers)) == 9.0


@pytest.mark.parametrize("value", ["soon", "-3", "", "1e3", "0x10", "nan", "inf", "9" * 400, "Mon, 99 Foo 2026"])
def test_a_value_that_is_no_time_is_ignored(value: str) -> None:
    """Neither a plain number nor a date: nothing is known."""
    assert parse_retry_after(value, epoch=1e9) is None
    assert retry_after_of(Carrier(headers={"Retry-After": value}), 1e9) is None


def test_dates_count_from_now() -> None:
    """An HTTP date is turned into seconds; a date in the past means now; without the present it means nothing."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    ahead = format_datetime(now + timedelta(seconds=90), usegmt=True)
    behind = format_datetime(now - timedelta(seconds=90), usegmt=True)
    assert parse_retry_after(ahead, now.timestamp()) == pytest.approx(90.0)
    assert parse_retry_after(behind, now.timestamp()) == 0.0
    assert parse_retry_after(ahead) is None


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_date_without_a_zone_is_greenwich_time(zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the machine stands."""
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        now = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        assert parse_retry_after("Thu, 01 Jan 2026 00:01:30 -0000", now) == pytest.approx(90.0)
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=60), st.floats(0.0, 1e10))
def test_no_text_breaks_the_parser(value: str, epoch: float) -> None:
    """Seconds that are not negative, or None."""
    seconds = parse_retry_after(value, epoch)
    assert seconds is None or 0.0 <= seconds < float("inf")


class Hostile(Exception):
    """An exception whose every other attribute raises."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(name)


def test_an_exception_that_cannot_be_read_is_still_judged() -> None:
    """Attributes that raise, mocks and headers that are none tell nothing and break nothing."""
    for exc in (Hostile(), Carrier(response=MagicMock(), headers=MagicMock()), Carrier(headers=7), Carrier(code=len)):
        verdict = classify(exc)
        assert (verdict.kind, verdict.status, verdict.retry_after_s) == (Kind.TRANSIENT, None, None)


def test_a_deprecated_alias_is_left_alone() -> None:
    """An aiohttp error without a status is judged without the warning that its `code` gives."""
    url, none = URL("http://x"), CIMultiDictProxy(CIMultiDict[str]())
    exc = aiohttp.ClientResponseError(aiohttp.RequestInfo(url, "GET", none, url), ())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert classify(exc).kind is Kind.TRANSIENT
    assert caught == []
