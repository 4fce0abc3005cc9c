"""Embeddings of another shape for every `AsyncOpenAI` of the process, for those who ask for it.

A proxy does not need this: its `is_hack_embedding_method` and `embedding_parser` concern itself alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
from openai._base_client import make_request_options
from openai._utils import is_given, maybe_transform
from openai.types import Embedding, EmbeddingCreateParams
from openai.types.create_embedding_response import Usage

from qreward.client.answers import vector

# What AsyncEmbeddings came with; None while nothing is patched.
_original_async_embeddings_create: Any = None


class HackCreateEmbeddingResponse(openai.BaseModel):
    """The response of a server that names its list ``embeddings``."""

    embeddings: list[Embedding]
    model: str
    object: str
    usage: Usage | None = None


def hack_parser(obj: Any) -> Any:
    """*obj* with its base64 vectors decoded; ValueError when it holds no embeddings."""
    if not obj.embeddings:
        raise ValueError("the server answered without any embeddings")
    for entry in obj.embeddings:
        if isinstance(getattr(entry, "embedding", None), str):
            entry.embedding = vector(entry.embedding)
    return obj


def patch_openai_embeddings(
    custom_return_cls: type[Any] = HackCreateEmbeddingResponse, custom_parser: Callable[[Any], Any] = hack_parser
) -> None:
    """Make ``embeddings.create`` of every AsyncOpenAI return *custom_parser(custom_return_cls)*, until unpatched."""
    global _original_async_embeddings_create  # noqa: PLW0603 - one patch per process
    cls = _embeddings_class()

    async def create(
        self: Any,
        *,
        extra_headers: Any = None,
        extra_query: Any = None,
        extra_body: Any = None,
        timeout: Any = openai.NOT_GIVEN,
        **params: Any,
    ) -> Any:
        if not is_given(params.get("encoding_format", openai.NOT_GIVEN)):
            params["encoding_format"] = "base64"
        return await self._post(
            "/embeddings",
            body=maybe_transform(params, EmbeddingCreateParams),
            options=make_request_options(
                extra_headers=extra_headers,
                extra_query=extra_query,
                extra_body=extra_body,
                timeout=timeout,
                post_parser=custom_parser,
            ),
            cast_to=custom_return_cls,
        )

    if _original_async_embeddings_create is None:
        _original_async_embeddings_create = getattr(cls, "create", None)
    cls.create = create


def unpatch_openai_embeddings() -> None:
    """Give AsyncEmbeddings its own `create` back; nothing happens where nothing is patched."""
    global _original_async_embeddings_create  # noqa: PLW0603
    if _original_async_embeddings_create is not None:
        _embeddings_class().create = _original_async_embeddings_create
        _original_async_embeddings_create = None


def _embeddings_class() -> Any:
    from openai.resources import embeddings  # looked up when needed: the class may have been replaced

    return embeddings.AsyncEmbeddings
