"""A plain HTTP client for judges."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson
import pytest

from qreward.testing import FakeJudge, eventually


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.raw)

    @property
    def text(self) -> str:
        return str(self.json["choices"][0]["message"]["content"])

    @property
    def events(self) -> list[str]:
        return [event.removeprefix("data: ") for event in self.raw.decode().split("\n\n") if event]


class Client:
    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    async def post(self, judge: FakeJudge, path: str, body: Any, key: str = "k") -> Answer:
        headers = {"Authorization": f"Bearer {key}", "X-Trace": "t", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        async with self.session.post(judge.url + path, data=data, headers=headers) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def get(self, judge: FakeJudge, path: str) -> Answer:
        async with self.session.get(judge.url + path) as answer:
            return Answer(answer.status, dict(answer.headers), await answer.read())

    async def chat(self, judge: FakeJudge, text: str = "hi", key: str = "k", **extra: Any) -> Answer:
        body = {"model": "m", "messages": [{"role": "user", "content": text}], **extra}
        return await self.post(judge, "/chat/completions", body, key)

    async def admin(self, judge: FakeJudge, path: str, body: Any = None) -> Answer:
        if body is None:
            return await self.get(judge, f"/../admin/{path}")
        return await self.post(judge, f"/../admin/{path}", body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    return eventually
