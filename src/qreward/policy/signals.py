"""What an exception of any common client library carries: its HTTP status and the time that the server asked for."""

from __future__ import annotations

import math
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

_PLAIN_NUMBER = re.compile(r"\s*\d+(\.\d*)?\s*", re.ASCII)


def attribute(holder: Any, name: str) -> Any:
    """The attribute, or None; the properties of other people's classes may raise anything."""
    try:
        return getattr(holder, name, None)
    except Exception:
        return None


def status_of(exc: BaseException) -> int | None:
    """The HTTP status, 100 to 599, from the exception itself or from its response."""
    for name in ("status_code", "status"):
        value = attribute(exc, name)
        if isinstance(value, int):
            if 100 <= value < 600:
                return int(value)
            break  # a status that is none, such as aiohttp's 0; its `code` is a deprecated alias
    else:
        value = attribute(exc, "code")
        if isinstance(value, int) and 100 <= value < 600:
            return int(value)
    response = attribute(exc, "response")
    return None if response is None else _response_status(response)


def _response_status(response: Any) -> int | None:
    if isinstance(response, dict):  # botocore
        metadata = response.get("ResponseMetadata")
        values = [metadata.get("HTTPStatusCode")] if isinstance(metadata, dict) else []
    else:
        values = [attribute(response, "status_code"), attribute(response, "status")]
    for value in values:
        if isinstance(value, int) and 100 <= value < 600:
            return int(value)
    return None


def retry_after_of(exc: BaseException, epoch: float | None = None) -> float | None:
    """Seconds that the server asked to wait: ``retry-after-ms``, ``Retry-After`` or an attribute ``retry_after``."""
    value = attribute(exc, "retry_after")
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
        return float(value)
    response = attribute(exc, "response")
    if isinstance(response, dict):  # botocore
        metadata = response.get("ResponseMetadata")
        headers = metadata.get("HTTPHeaders") if isinstance(metadata, dict) else None
    else:
        headers = None if response is None else attribute(response, "headers")
    found = None if headers is None else _from_headers(headers, epoch)
    if found is None and (headers := attribute(exc, "headers")) is not None:
        found = _from_headers(headers, epoch)
    return found


def _from_headers(headers: Any, epoch: float | None) -> float | None:
    millis = _header(headers, "retry-after-ms")
    if millis is not None and _PLAIN_NUMBER.fullmatch(millis):
        return _finite(float(millis) / 1000.0)
    value = _header(headers, "retry-after")
    return None if value is None else parse_retry_after(value, epoch)


def _header(headers: Any, name: str) -> str | None:
    """By any spelling: the header types of the libraries fold case, a plain dict does not."""
    if type(headers) is dict:
        value = next((v for k, v in headers.items() if isinstance(k, str) and k.lower() == name), None)
    else:
        try:
            value = headers.get(name)
        except Exception:  # whatever it is, it is not headers
            return None
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def parse_retry_after(value: str, epoch: float | None = None) -> float | None:
    """Seconds from the value of a Retry-After header, a number or an HTTP date; None when it is neither.

    A date needs *epoch*, the present in seconds since 1970; a date in the past gives 0.0.
    """
    if _PLAIN_NUMBER.fullmatch(value):
        return _finite(float(value))
    if epoch is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
        # A date without a zone is Greenwich time, not the local time of this machine.
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - epoch
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return max(0.0, seconds)


def _finite(seconds: float) -> float | None:
    return seconds if math.isfinite(seconds) else None
