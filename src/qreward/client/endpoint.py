"""Where the requests of a proxy go and what they carry: URL, key and headers, prepared once."""

from __future__ import annotations

import base64
import logging
import os
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from multidict import CIMultiDict
from yarl import URL

from qreward import __version__
from qreward.errors import ConfigError

log = logging.getLogger("qreward.client")

_LOOPBACK = ("localhost", "127.", "::1")


class Endpoint:
    """An OpenAI-compatible server: *base_url* ends with the version, such as ``https://host/v1``."""

    def __init__(self, base_url: str, api_key: str | None, default_headers: Mapping[str, str] | None = None) -> None:
        self.base_url = str(base_url)
        self.api_key = api_key
        self._base: URL | None = None
        self._urls: dict[str, URL] = {}
        self.headers = self._headers(default_headers or {})

    def _headers(self, extra: Mapping[str, str]) -> CIMultiDict[str]:
        headers = CIMultiDict(
            {
                "Accept": "application/json",
                "Accept-Encoding": "gzip, deflate",
                "Content-Type": "application/json",
                "User-Agent": f"qreward/{__version__}",
            }
        )
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        for variable, name in (("OPENAI_ORG_ID", "OpenAI-Organization"), ("OPENAI_PROJECT_ID", "OpenAI-Project")):
            if value := os.environ.get(variable):
                headers[name] = value
        headers.update(extra)
        return headers

    @property
    def base(self) -> URL:
        """The parsed URL; ConfigError when it is none."""
        if self._base is None:
            self._base = self._parse()
        return self._base

    def _parse(self) -> URL:
        try:
            url = URL(self.base_url.strip())
        except ValueError as exc:
            raise ConfigError(f"base_url {self.base_url!r} is not a URL: {exc}") from exc
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigError(f"base_url {self.base_url!r} must be like https://host:port/v1")
        if url.user is not None:
            if not self.api_key:
                pair = f"{url.user}:{url.password or ''}".encode()
                self.headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"
            url = url.with_user(None)
        return url

    def url(self, path: str, query: Mapping[str, Any] | None = None) -> URL:
        """The address of *path*, such as ``/chat/completions``; *query* is added to that of the base URL."""
        url = self._urls.get(path)
        if url is None:
            base = self.base
            whole = base.with_path(base.raw_path.rstrip("/") + path, encoded=True)
            url = self._urls[path] = whole.with_query(base.query) if base.query else whole
        return url.extend_query(urlencode(dict(query), doseq=True)) if query else url

    def merged_headers(self, extra: Mapping[str, Any] | None) -> CIMultiDict[str]:
        """The headers of a request: *extra* wins, and a value of None removes a header."""
        if not extra:
            return self.headers
        headers = self.headers.copy()
        for name, value in extra.items():
            headers.popall(name, None)
            if value is not None:
                headers[name] = str(value)
        return headers

    def environment_proxy(self) -> str | None:
        """The HTTP proxy that the environment (``HTTP_PROXY``, ``NO_PROXY``) names for this host; none for loopback."""
        try:
            base = self.base
        except ConfigError:
            return None  # said at the first request
        host = base.host or ""
        if host.startswith(_LOOPBACK) or urllib.request.proxy_bypass(host):
            return None
        proxies = urllib.request.getproxies()
        proxy = proxies.get(base.scheme) or proxies.get("all")
        if proxy and not proxy.startswith("http"):
            log.warning("the environment names a %s proxy; only http proxies are used", proxy.partition(":")[0])
            return None
        return proxy

    @property
    def shown(self) -> str:
        """The base URL without credentials, for people."""
        head, separator, tail = self.base_url.partition("://")
        authority, slash, path = tail.partition("/")
        return f"{head}{separator}{quote(authority.rpartition('@')[2], safe=':[]')}{slash}{path.partition('?')[0]}"
