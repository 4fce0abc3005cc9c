"""`OverloadChecker` and the names behind it."""

from __future__ import annotations

import errno

import httpx
import pytest
import requests

from qreward.globals import (
    LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING,
    OVERLOAD_EXCEPTIONS,
    OVERLOAD_KEYWORDS,
    SYSTEM_OVERLOAD_INDICATORS,
)
from qreward.utils.schedule import _overload_check
from qreward.utils.scheduler import OverloadChecker


class Status(Exception):
    def __init__(self, status_code: int) -> None:
        super().__init__("service overloaded, timeout")
        self.status_code = status_code


OVERLOADS = [
    Status(429),
    Status(503),
    Status(529),
    TimeoutError(),
    ConnectionResetError(),
    MemoryError(),
    OSError(errno.EMFILE, "x"),
    httpx.ReadTimeout("x"),
    httpx.ConnectError("x"),
    requests.exceptions.ConnectTimeout(),
    requests.exceptions.ReadTimeout(),
]
OTHERS = [Status(400), Status(404), ValueError("server overloaded: timeout"), OSError(errno.ENOENT, "x"), OSError("x")]


@pytest.mark.parametrize("error", OVERLOADS, ids=repr)
def test_overloads(error: Exception) -> None:
    """Statuses, timeouts, broken connections and exhausted resources speak of an overloaded server."""
    assert OverloadChecker.check(error)
    assert _overload_check(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_others(error: Exception) -> None:
    """Requests that are wrong as such do not, nor do other errors, whatever the message says."""
    assert not OverloadChecker.check(error)


def chain(depth: int, innermost: Exception) -> Exception:
    error = innermost
    for _ in range(depth):
        outer = ValueError("outer")
        outer.__cause__ = error
        error = outer
    return error


def test_causes_count_to_a_depth() -> None:
    """A cause counts as deep as 50, and a chain that bites its tail ends."""
    assert OverloadChecker.check(chain(30, ConnectionResetError()))
    assert not OverloadChecker.check(chain(60, ConnectionResetError()))
    first, second = ValueError(), ValueError()
    first.__cause__, second.__cause__ = second, first
    assert not OverloadChecker.check(first)


def test_the_tables() -> None:
    """The tables are constants: frozen sets of names, by library, of errno, of words."""
    tables = [OVERLOAD_EXCEPTIONS, OVERLOAD_KEYWORDS, SYSTEM_OVERLOAD_INDICATORS]
    tables += LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING.values()
    assert {type(table) for table in tables} == {frozenset}
    assert set(LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING) >= {"requests", "urllib3", "aiohttp", "httpx", "grpc"}
    assert {"TimeoutError", "ConnectionError"} <= OVERLOAD_EXCEPTIONS
    assert f"errno {errno.EMFILE}" in SYSTEM_OVERLOAD_INDICATORS
    assert {"overload", "rate limit"} <= OVERLOAD_KEYWORDS
