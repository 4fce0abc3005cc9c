"""Verdicts over the real exceptions of the libraries that people use."""

from __future__ import annotations

import asyncio
import json
import socket
import urllib.request
from collections.abc import Awaitable, Callable
from enum import Enum

import aiohttp
import httpx
import openai
import pytest
import requests
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from qreward.errors import CircuitOpenError, NoHealthySource
from qreward.policy.classify import Kind, classify, is_overload


def openai_error(status: int, headers: dict[str, str] | None = None) -> openai.APIStatusError:
    client = openai.OpenAI(api_key="k", base_url="http://127.0.0.1:9/v1")
    try:
        request = client._client.build_request("POST", "http://127.0.0.1:9/v1")
        module = __import__(type(request).__module__.partition(".")[0])
        response = module.Response(status, headers=headers, json={"error": {"message": "m"}}, request=request)
        return client._make_status_error_from_response(response)
    finally:
        client.close()


def httpx_error(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("GET", "http://x")
    return httpx.HTTPStatusError("m", request=request, response=httpx.Response(status, request=request))


def aiohttp_error(status: int) -> aiohttp.ClientResponseError:
    headers = CIMultiDictProxy(CIMultiDict[str]())
    info = aiohttp.RequestInfo(URL("http://x"), "GET", headers, URL("http://x"))
    return aiohttp.ClientResponseError(info, (), status=status)


def requests_error(status: int) -> requests.HTTPError:
    response = requests.Response()
    response.status_code = status
    return requests.HTTPError(response=response)


makers: list[Callable[[int], Exception]] = [openai_error, httpx_error, aiohttp_error, requests_error]


@pytest.mark.parametrize("make", makers)
def test_statuses_decide_for_every_library(make: Callable[[int], Exception]) -> None:
    """4xx are the client's, 429 and 503 are overload, 500 passes, whoever raises it."""
    kinds = {status: classify(make(status)).kind for status in (400, 401, 404, 408, 409, 422, 425, 429, 500, 503, 529)}
    assert {s for s, k in kinds.items() if k is Kind.CLIENT} == {400, 401, 404, 422}
    assert {s for s, k in kinds.items() if k is Kind.OVERLOAD} == {429, 503, 529}
    assert {s for s, k in kinds.items() if k is Kind.TRANSIENT} == {408, 409, 425, 500}


@pytest.mark.parametrize(
    "exc",
    [
        ConnectionResetError(),
        TimeoutError(),
        asyncio.IncompleteReadError(b"", 1),
        httpx.ReadTimeout("m"),
        aiohttp.ServerDisconnectedError(),
        requests.ConnectionError(),
        json.JSONDecodeError("m", "", 0),
        ValueError(),
        KeyError(),
        RuntimeError(),
        BaseException("anything"),
    ],
)
def test_what_may_pass_is_transient(exc: BaseException) -> None:
    """Connection errors, timeouts and unexpected answers are retried."""
    verdict = classify(exc)
    assert (verdict.kind, verdict.retryable) == (Kind.TRANSIENT, True)


@pytest.mark.parametrize("exc", [TypeError(), AttributeError(), NameError(), ImportError(), AssertionError()])
def test_bugs_are_bugs(exc: Exception) -> None:
    """A programming error is not the server's fault."""
    verdict = classify(exc)
    assert (verdict.kind, verdict.retryable) == (Kind.BUG, False)


@pytest.mark.parametrize(
    "exc",
    [ConnectionRefusedError(), socket.gaierror(), httpx.ConnectError("m"), httpx.PoolTimeout("m"), openai_error(429)],
)
def test_what_was_certainly_not_processed(exc: Exception) -> None:
    """Refused connections and refused requests may be repeated even by calls that may not run twice."""
    assert classify(exc).unsent
    assert not classify(ConnectionResetError()).unsent


def test_the_cause_tells_that_nothing_was_sent() -> None:
    """An API error around a refused connection counts as unsent."""
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = ConnectionRefusedError()
    assert classify(wrapped).unsent


def test_what_was_handled_before_is_not_the_cause() -> None:
    """A call to a second server, made because the first refused, was sent: its timeout is not a refusal."""
    second = httpx.ReadTimeout("second server")
    second.__context__ = ConnectionRefusedError()
    assert not classify(second).unsent


def closed_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


async def by_aiohttp(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(url):
        pass


async def by_openai(url: str) -> None:
    async with openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        await client.models.list()


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        await client.get(url)


async def by_requests(url: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.get(url, timeout=5)


async def by_urllib(url: str) -> None:
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=5)


@pytest.mark.parametrize("ask", [by_aiohttp, by_openai, by_httpx, by_requests, by_urllib])
async def test_a_closed_port_is_unsent_for_every_library(ask: Callable[[str], Awaitable[None]]) -> None:
    """What the libraries really raise where nobody listens may be repeated by every call."""
    with pytest.raises(Exception, match=r".*") as caught:
        await ask(closed_port())
    verdict = classify(caught.value)
    assert (verdict.kind, verdict.unsent, verdict.retryable) == (Kind.TRANSIENT, True, True)


class StatusCode(Enum):
    """The shape of grpc.StatusCode."""

    RESOURCE_EXHAUSTED = 8
    UNAVAILABLE = 14
    INVALID_ARGUMENT = 3
    INTERNAL = 13


class RpcError(Exception):
    """The shape of grpc.RpcError as a call raises it."""

    __module__ = "grpc"

    def __init__(self, code: StatusCode) -> None:
        self._code = code

    def code(self) -> StatusCode:
        return self._code


def test_grpc_codes_count_as_their_http_statuses() -> None:
    """RESOURCE_EXHAUSTED is a 429, UNAVAILABLE a 503, INVALID_ARGUMENT the client's, INTERNAL passes."""
    verdicts = [classify(RpcError(code)) for code in StatusCode]
    assert [v.status for v in verdicts] == [429, 503, 400, 500]
    assert [v.kind for v in verdicts] == [Kind.OVERLOAD, Kind.OVERLOAD, Kind.CLIENT, Kind.TRANSIENT]
    assert is_overload(RpcError(StatusCode.UNAVAILABLE))


class ClientError(Exception):
    """The shape of botocore.exceptions.ClientError."""

    __module__ = "botocore.exceptions"

    def __init__(self, code: str, status: int) -> None:
        headers = {"retry-after": "3"}
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        self.response = {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": metadata}


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("ThrottlingException", 400, Kind.OVERLOAD),
        ("ValidationException", 400, Kind.CLIENT),
        ("ServiceUnavailableException", 503, Kind.OVERLOAD),
        ("InternalServerException", 500, Kind.TRANSIENT),
    ],
)
def test_aws_errors_count_by_code_and_status(code: str, status: int, kind: Kind) -> None:
    """Throttling is overload even with status 400; the header is read from the metadata."""
    verdict = classify(ClientError(code, status))
    assert verdict.kind is kind
    assert verdict.retry_after_s == (None if kind is Kind.CLIENT else 3.0)


def test_words_in_a_message_mean_nothing() -> None:
    """`too many requests` in a message is not overload; a 429 without words is."""
    assert not is_overload(ValueError("429 too many requests, rate limit, overloaded"))
    assert is_overload(openai_error(429))


@pytest.mark.parametrize(
    "exc", [TimeoutError(), httpx.ReadTimeout("m"), requests.Timeout(), aiohttp.ServerTimeoutError()]
)
def test_a_server_that_does_not_keep_up_is_overloaded(exc: Exception) -> None:
    """Timeouts count for `is_overload`; a broken connection says nothing about load."""
    assert is_overload(exc)
    assert not is_overload(ConnectionResetError())


def test_a_refusal_of_our_own_was_not_sent() -> None:
    """An open breaker and a pool without sources kept the request here; the breaker says when to come back."""
    verdict = classify(CircuitOpenError("k", 4.0))
    assert (verdict.retryable, verdict.unsent, verdict.retry_after_s) == (True, True, 4.0)
    assert classify(NoHealthySource()).unsent


def test_overload_is_found_behind_causes_even_in_a_circle() -> None:
    """The chain of causes is followed, and a chain that bites its tail ends."""
    outer, inner = RuntimeError("outer"), RuntimeError("inner")
    outer.__cause__, inner.__cause__ = inner, outer
    assert not is_overload(outer)
    inner.__cause__ = openai_error(503)
    assert is_overload(outer)
