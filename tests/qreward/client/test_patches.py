"""The process-wide patches: only when called, and undone completely."""

from __future__ import annotations

import json
import subprocess
import sys

import openai
import pytest

from qreward.client.errors import httpx_of_openai
from qreward.client.patch_httpx import patch_httpx, unpatch_httpx
from qreward.client.patch_openai import (
    HackCreateEmbeddingResponse,
    patch_openai_embeddings,
    unpatch_openai_embeddings,
)


@pytest.fixture(autouse=True)
def _unpatched():
    yield
    unpatch_httpx()
    unpatch_openai_embeddings()


@pytest.mark.parametrize("library", ["orjson", "ujson", "json", None])
def test_httpx_speaks_json(library, monkeypatch):
    """Every choice, installed or not, encodes and decodes to the same values, compactly and in UTF-8."""
    monkeypatch.setenv("JSON_LIB", "orjson")
    httpx = httpx_of_openai()
    before = httpx._content.encode_json, httpx.Response.json
    patch_httpx(library)
    value = {"title": "标题", "numbers": [1.5, 2]}
    request = httpx.Request("POST", "http://h", json=value)
    assert request.content == json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    assert request.headers["content-length"] == str(len(request.content))
    response = httpx.Response(200, content=request.content)
    assert response.json() == value
    assert response.json(parse_float=str)["numbers"] == ["1.5", 2]
    patch_httpx("json")
    unpatch_httpx()
    assert (httpx._content.encode_json, httpx.Response.json) == before


def test_nothing_is_patched_by_using_the_client():
    """Constructing and using a proxy leaves httpx and openai as they were."""
    code = """
import openai, asyncio
from qreward.client.errors import httpx_of_openai
httpx = httpx_of_openai()
from openai.resources.embeddings import AsyncEmbeddings
before = httpx._content.encode_json, httpx.Response.json, AsyncEmbeddings.create
from qreward.client import OpenAIChatProxy
proxy = OpenAIChatProxy("http://127.0.0.1:9/v1", api_key="k", is_hack_embedding_method=True)
proxy.client
assert before == (httpx._content.encode_json, httpx.Response.json, AsyncEmbeddings.create)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


async def test_patched_embeddings(judge, hello):
    """Any AsyncOpenAI returns the alternative response, vectors decoded, until it is unpatched."""
    judge.faults.set(embeddings_field="embeddings")
    patch_openai_embeddings()
    async with openai.AsyncOpenAI(base_url=judge.url, api_key="k", max_retries=0) as client:
        response = await client.embeddings.create(input=["a"], model="e")
        assert isinstance(response, HackCreateEmbeddingResponse)
        assert [type(x) for x in response.embeddings[0].embedding[:1]] == [float]
        assert judge.counters.arrivals[0].body["encoding_format"] == "base64"
        unpatch_openai_embeddings()
        unpatch_openai_embeddings()
        with pytest.raises(ValueError, match="No embedding data"):
            await client.embeddings.create(input=["a"], model="e")
