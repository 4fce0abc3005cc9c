"""What an exception says about the server and whether a repetition can help: by type and status, never by words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from weakref import WeakKeyDictionary

from qreward.policy.signals import attribute, parse_retry_after, retry_after_of, status_of

__all__ = ["Kind", "Verdict", "classify", "is_overload", "parse_retry_after", "retry_after_of", "status_of"]


class Kind(Enum):
    """CLIENT: the request is wrong. BUG: the program is. OVERLOAD: the server pushes back. TRANSIENT: it may pass."""

    CLIENT = "client"
    BUG = "bug"
    OVERLOAD = "overload"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`unsent`: the server certainly did not process the attempt, so that even a non-idempotent one may be repeated."""

    kind: Kind
    retryable: bool
    status: int | None = None
    retry_after_s: float | None = None
    unsent: bool = False


RETRYABLE_4XX = frozenset({408, 409, 425, 429})
OVERLOAD_STATUS = frozenset({429, 502, 503, 504, 529})

_BUGS = (
    TypeError,
    AttributeError,
    NameError,
    SyntaxError,
    ImportError,
    NotImplementedError,
    AssertionError,
    RecursionError,
)
_OVERLOAD_TYPES = frozenset(
    {
        "openai.RateLimitError",
        "anthropic.RateLimitError",
        "google.api_core.exceptions.TooManyRequests",
        "google.api_core.exceptions.ResourceExhausted",
        "google.api_core.exceptions.ServiceUnavailable",
    }
)
_STALLED_TYPES = frozenset(
    {
        "builtins.TimeoutError",
        "httpx.TimeoutException",
        "httpx2.TimeoutException",
        "openai.APITimeoutError",
        "requests.exceptions.Timeout",
    }
)
# Raised before a byte of the request was accepted.
_UNSENT_TYPES = frozenset(
    {
        "aiohttp.client_exceptions.ClientConnectorError",
        "aiohttp.client_exceptions.ConnectionTimeoutError",
        "botocore.exceptions.ConnectTimeoutError",
        "botocore.exceptions.EndpointConnectionError",
        "builtins.ConnectionRefusedError",
        "httpcore.ConnectError",
        "httpcore.ConnectTimeout",
        "httpcore.PoolTimeout",
        "httpx.ConnectError",
        "httpx.ConnectTimeout",
        "httpx.PoolTimeout",
        "httpx2.ConnectError",
        "httpx2.ConnectTimeout",
        "httpx2.PoolTimeout",
        "qreward.errors.CircuitOpenError",
        "qreward.errors.NoHealthySource",
        "requests.exceptions.ConnectTimeout",
        "socket.gaierror",
        "urllib3.exceptions.ConnectTimeoutError",
        "urllib3.exceptions.NewConnectionError",
    }
)
# Raised in the handler of what happened, without `from`.
_WRAPPING_TYPES = frozenset({"requests.exceptions.ConnectionError", "urllib.error.URLError"})
# https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto, where 409 and 501 are final: 400.
_GRPC_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 400,
    "PERMISSION_DENIED": 403,
    "UNAUTHENTICATED": 401,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 400,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
}
# Error codes that AWS answers with status 400 as often as with 429.
_AWS_THROTTLING = frozenset(
    {
        "BandwidthLimitExceeded",
        "LimitExceededException",
        "PriorRequestNotComplete",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
CHAIN_DEPTH = 50


class _Facts(NamedTuple):
    """What a class says by itself."""

    bug: bool
    overload: bool
    stalled: bool
    unsent: bool
    wraps: bool
    grpc: bool
    aws: bool


# Weak, because classes made in functions come and go.
_FACTS: WeakKeyDictionary[type[BaseException], _Facts] = WeakKeyDictionary()


def _facts(cls: type[BaseException]) -> _Facts:
    known = _FACTS.get(cls)
    if known is None:
        names = _names(cls)
        known = _FACTS[cls] = _Facts(
            bug=issubclass(cls, _BUGS),
            overload=not names.isdisjoint(_OVERLOAD_TYPES),
            stalled=not names.isdisjoint(_STALLED_TYPES),
            unsent=not names.isdisjoint(_UNSENT_TYPES),
            wraps=not names.isdisjoint(_WRAPPING_TYPES),
            grpc="grpc.RpcError" in names,
            aws="botocore.exceptions.ClientError" in names,
        )
    return known


def _names(cls: type[BaseException]) -> set[str]:
    """The qualified names along the MRO, by full module path and by the package's top: private paths move."""
    names = set()
    for base in cls.__mro__:
        names.add(f"{base.__module__}.{base.__qualname__}")
        names.add(f"{base.__module__.partition('.')[0]}.{base.__qualname__}")
    return names


def classify(exc: BaseException, *, epoch: float | None = None) -> Verdict:
    """The verdict on *exc*; never raises. *epoch* (seconds since 1970) turns a Retry-After date into seconds."""
    facts = _facts(type(exc))
    status, overload = _pushback(exc, facts)
    if not overload:
        if status is None and facts.bug:
            return Verdict(Kind.BUG, retryable=False)
        if status is not None and 400 <= status < 500 and status not in RETRYABLE_4XX:
            return Verdict(Kind.CLIENT, retryable=False, status=status)
    retry_after_s = retry_after_of(exc, epoch)
    if overload:
        refused = status == 429 or (status == 503 and retry_after_s is not None)
        return Verdict(Kind.OVERLOAD, True, status, retry_after_s, refused or facts.unsent)
    return Verdict(Kind.TRANSIENT, True, status, retry_after_s, status is None and _unsent(exc))


def is_overload(exc: BaseException) -> bool:
    """Whether *exc*, or one of its causes up to 50 deep, says that the server pushes back or does not keep up."""
    for link in causes(exc):
        facts = _facts(type(link))
        if facts.stalled or _pushback(link, facts)[1]:
            return True
    return False


def _pushback(exc: BaseException, facts: _Facts) -> tuple[int | None, bool]:
    """(the HTTP status or its equivalent, whether this is overload)."""
    status = status_of(exc)
    if facts.grpc and status is None:
        status = _grpc_status(exc)
    elif facts.aws and _aws_code(exc) in _AWS_THROTTLING:
        return 429, True
    return status, facts.overload or status in OVERLOAD_STATUS


def _grpc_status(exc: BaseException) -> int | None:
    code = attribute(exc, "code")
    try:
        return _GRPC_STATUS.get(code().name) if callable(code) else None
    except Exception:  # a bare RpcError has a code only when a call gave it one
        return None


def _aws_code(exc: BaseException) -> str | None:
    response = attribute(exc, "response")
    error = response.get("Error") if isinstance(response, dict) else None
    code = error.get("Code") if isinstance(error, dict) else None
    return code if isinstance(code, str) else None


def causes(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = exc
    while link is not None and len(seen) < CHAIN_DEPTH and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _unsent(exc: BaseException) -> bool:
    """By causes only: what was being handled when *exc* was raised may have been another request."""
    link: BaseException | None = exc
    for _ in range(CHAIN_DEPTH):
        if link is None:
            return False
        facts = _facts(type(link))
        if facts.unsent:
            return True
        link = link.__cause__ or (link.__context__ if facts.wraps else None)
    return False
