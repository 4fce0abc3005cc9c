"""What one call asks for: the request, and how its answer is read, whoever carries it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from qreward.client.deltas import texts, texts_of_chunks
from qreward.client.request import CHAT, Request
from qreward.client.transport import Reply

if TYPE_CHECKING:
    from qreward.client.openai import OpenAIChatProxy

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Job(Generic[T]):
    """A request and its meaning.

    `parse` reads a response from the wire, `adapt` what a replaced ``client.….create`` returned.
    """

    request: Request
    parse: Callable[[Reply], T]
    adapt: Callable[[Any], T]

    async def run(self, proxy: OpenAIChatProxy) -> T:
        """One attempt at *proxy*, through whatever a user put in place of its client's method."""
        create = _replacement(proxy, self.request.path)
        if create is None:
            return await proxy._wire.send(self.request, self.parse)
        return self.adapt(await create(**self.request.arguments))


@dataclass(slots=True, eq=False)
class StreamJob:
    """A request whose answer is a stream of text."""

    request: Request

    async def run(self, proxy: OpenAIChatProxy) -> AsyncGenerator[str, None]:
        """One attempt at *proxy*: the pieces of the answer as they arrive."""
        create = _replacement(proxy, CHAT)
        if create is None:
            pieces = texts(proxy._wire.events(self.request))
        else:
            pieces = texts_of_chunks(await create(**self.request.arguments))
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()


@dataclass(slots=True, eq=False)
class CollectJob:
    """A stream that is collected before it is returned, so that it can be repeated as a whole."""

    request: Request

    async def run(self, proxy: OpenAIChatProxy) -> str:
        """One attempt at *proxy*: the whole text."""
        return "".join([piece async for piece in StreamJob(self.request).run(proxy)])


def _replacement(proxy: OpenAIChatProxy, path: str) -> Callable[..., Any] | None:
    client = proxy._client
    if client is None:
        return None
    from qreward.client.async_client import replaced_chat_create, replaced_embeddings_create

    return replaced_chat_create(client) if path == CHAT else replaced_embeddings_create(client)


def content(completion: Any) -> Any:
    """The text of a ChatCompletion, or of whatever stands in for one."""
    return completion.choices[0].message.content


def same(value: T) -> T:
    """*value*."""
    return value
