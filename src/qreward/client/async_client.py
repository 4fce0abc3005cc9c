"""The `AsyncOpenAI` that a proxy shows as `client`: openai's own, over the proxy's connections."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import openai
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.embeddings import AsyncEmbeddings

from qreward.client.answers import completion_of
from qreward.client.httpx_bridge import bridge_class
from qreward.client.request import CHAT, Request
from qreward.client.wire import Hook, Wire

_EMBEDDINGS_CREATE = AsyncEmbeddings.create


class WiredCompletions(AsyncCompletions):
    """`create` goes over the proxy's wire, once, outside of its limits; streams and raw responses as openai does."""

    async def create(self, **arguments: Any) -> Any:
        wire: Wire | None = getattr(self._client, "wire", None)
        raw = any(name.lower() == "x-stainless-raw-response" for name in arguments.get("extra_headers") or ())
        if wire is None or raw or arguments.get("stream") is True:
            return await super().create(**arguments)
        arguments.setdefault("timeout", self._client.timeout)
        return await wire.send(Request(CHAT, arguments), completion_of)


class WiredChat(AsyncChat):
    """Leads to `WiredCompletions`."""

    @functools.cached_property
    def completions(self) -> WiredCompletions:
        return WiredCompletions(self._client)


class WiredClient(openai.AsyncOpenAI):
    """Copies made by `with_options` have no wire and behave like openai's own client."""

    wire: Wire | None = None

    @functools.cached_property
    def chat(self) -> WiredChat:
        return WiredChat(self)


def wired_client(wire: Wire, timeout: float | None) -> WiredClient:
    """A client for the endpoint of *wire*, without retries of its own."""
    hooks = {"request": _async_hooks(wire.request_hook), "response": _async_hooks(wire.response_hook)}
    http = openai.DefaultAsyncHttpxClient(
        transport=bridge_class()(wire.transport), trust_env=False, follow_redirects=False, event_hooks=hooks
    )
    client = WiredClient(
        base_url=wire.endpoint.base_url,
        api_key=wire.endpoint.api_key or "",
        timeout=timeout,
        max_retries=0,
        http_client=http,
    )
    client.wire = wire
    return client


def _async_hooks(hook: Hook | None) -> list[Callable[..., Any]]:
    if hook is None:
        return []
    if inspect.iscoroutinefunction(hook):
        return [hook]

    async def call(argument: Any) -> None:
        outcome = hook(argument)
        if inspect.isawaitable(outcome):
            await outcome

    return [call]


def replaced_chat_create(client: Any) -> Callable[..., Any] | None:
    """What a user or a test put in place of ``client.chat.completions.create``; None = nothing."""
    create = client.chat.completions.create
    ours = type(client) is WiredClient and getattr(create, "__func__", None) is WiredCompletions.create
    return None if ours else create


def replaced_embeddings_create(client: Any) -> Callable[..., Any] | None:
    """The same for ``client.embeddings.create``."""
    create = client.embeddings.create
    ours = type(client) is WiredClient and getattr(create, "__func__", None) is _EMBEDDINGS_CREATE
    return None if ours else create
