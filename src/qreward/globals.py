"""Which exceptions speak of an overloaded server: the name tables behind `qreward.legacy.overload`.

`schedule` itself judges by `qreward.policy.classify`, which knows status codes and class hierarchies as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TIMEOUTS = {
    "TimeoutError",
    "asyncio.TimeoutError",
    "concurrent.futures.TimeoutError",
    "socket.timeout",
    "ConnectTimeout",
    "ConnectionTimeout",
    "ReadTimeout",
}
_CONNECTIONS = {
    "BrokenPipeError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "IncompleteRead",
    "ProtocolError",
    "RemoteDisconnected",
    "SSLError",
    "TooManyRedirects",
}
_RESOURCES = {"MemoryError", "OSError", "RateLimitExceeded", "ResourceExhausted", "ThrottlingException"}

OVERLOAD_EXCEPTIONS: Final = frozenset(_TIMEOUTS | _CONNECTIONS | _RESOURCES)
"""Class names, some with their module. An ``OSError`` counts by its errno (`SYSTEM_OVERLOAD_INDICATORS`)."""

LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING: Final[Mapping[str, frozenset[str]]] = {
    "requests": frozenset({"ConnectionError", "ConnectTimeout", "ReadTimeout", "SSLError", "TooManyRedirects"}),
    "urllib3": frozenset(
        {"ConnectTimeoutError", "ConnectionError", "NewConnectionError", "ReadTimeoutError", "TimeoutError"}
    ),
    "aiohttp": frozenset(
        {
            "ClientConnectorError",
            "ClientOSError",
            "ConnectionTimeoutError",
            "ServerDisconnectedError",
            "ServerTimeoutError",
            "SocketTimeoutError",
            "TimeoutError",
        }
    ),
    "httpx": frozenset(
        {
            "ConnectError",
            "ConnectTimeout",
            "NetworkError",
            "PoolTimeout",
            "ReadError",
            "ReadTimeout",
            "RemoteProtocolError",
            "TimeoutException",
            "WriteTimeout",
        }
    ),
    "openai": frozenset({"APIConnectionError", "APITimeoutError", "InternalServerError", "RateLimitError"}),
    "grpc": frozenset({"DeadlineExceeded", "ResourceExhausted", "Unavailable"}),
}
"""Class names by the library (top-level module) that defines them."""

SYSTEM_OVERLOAD_INDICATORS: Final = frozenset(
    f"errno {number}"
    for number in (
        11,  # EAGAIN
        12,  # ENOMEM
        23,  # ENFILE
        24,  # EMFILE
        104,  # ECONNRESET
        110,  # ETIMEDOUT
        10054,  # WSAECONNRESET
        10060,  # WSAETIMEDOUT
    )
)
"""``errno N`` for the system errors that mean exhausted resources or a peer that does not answer."""

OVERLOAD_KEYWORDS: Final = frozenset(
    {
        *("overload", "overloaded", "server overload", "busy", "server busy", "high load", "load", "cpu"),
        *("timeout", "time out", "timed out", "deadline exceeded"),
        *("rate limit", "request rate", "limit", "limited", "quota", "exceeded", "too many", "throttle", "throttled"),
        *("resource", "out of resources", "resource temporarily unavailable", "capacity", "memory", "out of memory"),
        *("unavailable", "not available", "service unavailable", "temporarily unavailable"),
        *("traffic", "traffic spike", "connection pool", "pool exhausted", "thread limit", "process limit"),
        *("connection refused", "connection reset", "broken pipe", "file descriptor", "too many open files"),
    }
)
"""Words that such errors tend to contain. For filters and dashboards of users: qreward never judges by a message."""
