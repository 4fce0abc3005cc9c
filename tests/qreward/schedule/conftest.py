"""A counting judge and the plainest client for it, for tests of `schedule` through the public door."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import aiohttp
import pytest

from qreward.runtime.registry import registry
from qreward.testing import FakeJudge


class HTTPError(Exception):
    """What most client libraries raise: a status and the server's headers."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        super().__init__(f"HTTP {status}")
        self.status_code = status
        self.headers = headers


@pytest.fixture(autouse=True)
def _fresh_keys() -> Iterator[None]:
    registry.clear()
    yield
    registry.clear()


@pytest.fixture
async def judge() -> AsyncIterator[FakeJudge]:
    async with FakeJudge() as judge:
        yield judge


@pytest.fixture
def threaded_judge() -> Iterator[FakeJudge]:
    with FakeJudge().in_thread() as judge:
        yield judge


@pytest.fixture
async def ask(judge: FakeJudge) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """`await ask(text)` is one request to the judge."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=30)) as session:

        async def ask(text: str = "x") -> str:
            body = {"model": "m", "messages": [{"role": "user", "content": text}]}
            async with session.post(f"{judge.url}/chat/completions", json=body) as answer:
                if answer.status != 200:
                    raise HTTPError(answer.status, dict(answer.headers))
                return str((await answer.json())["choices"][0]["message"]["content"])

        yield ask


@pytest.fixture
def ask_sync(threaded_judge: FakeJudge) -> Callable[[str], str]:
    """`ask_sync(text)` is one blocking request to the judge in a thread."""

    def ask(text: str = "x") -> str:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
        request = urllib.request.Request(f"{threaded_judge.url}/chat/completions", data=body)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(json.loads(answer.read())["choices"][0]["message"]["content"])
        except urllib.error.HTTPError as exc:
            exc.close()
            raise HTTPError(exc.code, dict(exc.headers)) from None

    return ask
