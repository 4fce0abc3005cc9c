"""The client's settings, checked once when a client is made."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

OnError = Literal["warn", "raise", "ignore"]
BodyFormat = Literal["json", "msgpack"]
IMAGE_FORMATS = {"JPEG": "JPEG", "JPG": "JPEG", "PNG": "PNG", "WEBP": "WEBP"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The parameters of `RewardClient`, which documents them; raises ValueError or TypeError for bad ones."""

    base_url: str | Sequence[str]
    timeout: float | None
    image_format: str
    image_quality: int
    trust_env: bool
    on_error: OnError
    max_retries: int
    retry_delay: float
    coalesce_ms: float
    max_items_per_request: int | None
    max_body_bytes: int
    headers: Mapping[str, str] | None = field(repr=False)
    encode_threads: int | None
    body_format: BodyFormat
    max_connections: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", _urls(self.base_url))
        object.__setattr__(self, "image_format", _image_format(self.image_format))
        object.__setattr__(self, "headers", _headers(self.headers))
        if self.timeout is not None:
            _positive("timeout", self.timeout, "seconds, or None to wait for ever")
        _at_least("image_quality", self.image_quality, 1)
        if self.image_quality > 100:
            raise ValueError(f"image_quality is 1 to 100, not {self.image_quality}")
        _one_of("on_error", self.on_error, ("warn", "raise", "ignore"))
        _one_of("body_format", self.body_format, ("json", "msgpack"))
        _at_least("max_retries", self.max_retries, 0)
        _not_negative("retry_delay", self.retry_delay)
        _not_negative("coalesce_ms", self.coalesce_ms)
        for name in ("max_items_per_request", "encode_threads"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        _at_least("max_body_bytes", self.max_body_bytes, 1)
        _at_least("max_connections", self.max_connections, 1)
        if self.body_format == "msgpack" and importlib.util.find_spec("msgspec") is None:
            raise ValueError('body_format="msgpack" needs msgspec: pip install msgspec, or use body_format="json"')

    @property
    def urls(self) -> tuple[str, ...]:
        """The base URLs, without a trailing slash."""
        return tuple(self.base_url)

    @property
    def coalesce_s(self) -> float | None:
        """Seconds to wait for companions; None when calls are not coalesced."""
        return self.coalesce_ms / 1000 or None

    @property
    def threads(self) -> int:
        """Encoder threads: as asked, or one per core, at most 8."""
        return self.encode_threads or min(8, os.cpu_count() or 1)


def without_password(url: str) -> str:
    """*url* as it may be shown: user name and password are left out."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _urls(given: str | Sequence[str]) -> tuple[str, ...]:
    urls = [given] if isinstance(given, str) else list(given)
    if not urls:
        raise ValueError("base_url is an empty list; give at least one URL such as http://localhost:8080")
    return tuple(dict.fromkeys(_url(url) for url in urls))


def _url(url: object) -> str:
    if not isinstance(url, str):
        raise TypeError(f"base_url must be a string or a list of strings, not {type(url).__name__}")
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment:
        raise ValueError(f"base_url {url!r} is not usable; write it like http://localhost:8080")
    return url.strip().rstrip("/")


def _image_format(name: str) -> str:
    known = IMAGE_FORMATS.get(name.upper()) if isinstance(name, str) else None
    if known is None:
        raise ValueError(f"image_format {name!r} is not one of JPEG, PNG, WEBP")
    return known


def _headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    for name, value in (headers or {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"headers map strings to strings; {name!r} does not")
    return dict(headers or {})


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} {value!r} is not one of {', '.join(allowed)}")


def _at_least(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    return float(value)


def _positive(name: str, value: float, unit: str) -> None:
    number = _number(name, value)
    if not math.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be above 0 ({unit}), not {value}")


def _not_negative(name: str, value: float) -> None:
    number = _number(name, value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"{name} must not be negative, not {value}")
