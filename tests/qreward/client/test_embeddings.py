"""Embeddings: objects of openai, whatever shape the server answers in."""

from __future__ import annotations

import openai
import pytest
from openai.types import Embedding

from qreward.errors import BatchError, ConfigError
from qreward.testing.faults import Delay


async def test_embeddings_are_openais_objects(proxy, judge):
    """A list of Embedding in input order; vectors travel as base64 and equal those sent as numbers."""
    packed = await proxy.embeddings(sentences=["a", "b"], model="e")
    plain = await proxy.embeddings(sentences=["a", "b"], model="e", encoding_format="float")
    assert [type(e) for e in packed] == [Embedding, Embedding]
    assert [e.index for e in packed] == [0, 1]
    assert packed[1].embedding == pytest.approx(plain[1].embedding, abs=1e-6)
    assert [a.body["encoding_format"] for a in judge.counters.arrivals] == ["base64", "float"]


async def test_every_argument_reaches_the_wire(proxy, judge):
    """extra_body and any argument are in the body; what was not given is not."""
    await proxy.embeddings(sentences=["a"], model="e", extra_body={"task": "query"}, dimensions=8, timeout=5)
    body = judge.counters.arrivals[0].body
    assert body == {"input": ["a"], "model": "e", "task": "query", "dimensions": 8, "encoding_format": "base64"}
    await proxy.embeddings(extra_body={"input": "x"})
    assert judge.counters.arrivals[1].body == {"input": "x", "encoding_format": "base64"}


@pytest.mark.parametrize("hack", [False, True])
async def test_the_alternative_shape(judge, proxy_for, hack):
    """`embeddings` in place of `data` is read by a proxy that expects it, and by one that does not."""
    judge.faults.set(embeddings_field="embeddings")
    proxy = proxy_for(judge.url, is_hack_embedding_method=hack)
    assert len((await proxy.embeddings(sentences=["a"], model="e"))[0].embedding) == 64


async def test_shapes_are_per_proxy(judge, proxy_for):
    """A proxy for the alternative shape changes nothing for openai's own classes or another proxy."""
    create = openai.resources.embeddings.AsyncEmbeddings.create
    odd, usual = proxy_for(judge.url, is_hack_embedding_method=True), proxy_for(judge.url)
    assert openai.resources.embeddings.AsyncEmbeddings.create is create
    assert await usual.embeddings(sentences=["a"], model="e")
    with pytest.raises(openai.APIResponseValidationError, match="no embeddings in 'embeddings'"):
        await odd.embeddings(sentences=["a"], model="e")


async def test_a_parser_of_ones_own(raw, proxy_for):
    """embedding_parser gets the body and gives the result; what it refuses is a malformed answer."""
    raw.answer(b'{"vectors": [[1, 2]]}')
    proxy = proxy_for(raw.url, embedding_parser=lambda body: body["vectors"])
    assert await proxy.embeddings(sentences=["a"], model="e") == [[1, 2]]
    raw.answer(b'{"other": 1}')
    with pytest.raises(openai.APIResponseValidationError, match="KeyError"):
        await proxy.embeddings(sentences=["a"], model="e")


async def test_bare_vectors(raw, proxy_for):
    """A list of vectors without objects becomes Embeddings with their index."""
    raw.answer(b'{"embeddings": [[1.5, 2], [3, 4]]}')
    found = await proxy_for(raw.url).embeddings(sentences=["a", "b"], model="e")
    assert [(e.index, e.embedding) for e in found] == [(0, [1.5, 2]), (1, [3, 4])]


@pytest.mark.parametrize(
    "body", [b'{"data": []}', b'{"data": [{"index": 0}]}', b'{"data": [{"embedding": "@@"}]}', b"1"]
)
async def test_malformed_embeddings(raw, proxy_for, body):
    """An answer without vectors is an APIResponseValidationError."""
    raw.answer(body)
    with pytest.raises(openai.APIResponseValidationError):
        await proxy_for(raw.url).embeddings(sentences=["a"], model="e")


async def test_failures_are_repeated(proxy, judge):
    """Embeddings have the same retries as chat."""
    judge.script(503, "malformed", "ok")
    assert len(await proxy.embeddings(sentences=["a"], model="e")) == 1
    assert judge.counters.received == 3


async def test_batch_is_in_order_with_its_extra_bodies(proxy, judge):
    """One list per entry, each with the extra body at its place."""
    found = await proxy.batch_embeddings(
        batch_sentences=[["a"], ["b", "c"]], model="e", extra_bodies=[{"dimensions": 4}, {"dimensions": 8}]
    )
    assert [[len(e.embedding) for e in entry] for entry in found] == [[4], [8, 8]]
    with pytest.raises(ConfigError, match="1 extra_bodies for 2"):
        await proxy.batch_embeddings(batch_sentences=[["a"], ["b"]], extra_bodies=[{}])


async def test_batch_raises_the_first_failure(proxy, judge):
    """By default the first failure is raised itself and ends the rest; on_error="return" loses nothing."""
    judge.script(400, Delay(30))
    with pytest.raises(openai.BadRequestError):
        await proxy.batch_embeddings(batch_sentences=[["a"], ["b"]], model="e")
    judge.script(400)
    results = await proxy.with_max_concurrent(1).batch_embeddings(
        batch_sentences=[["a"], ["b"]], model="e", on_error="return"
    )
    assert isinstance(results[0], openai.BadRequestError)
    assert len(results[1]) == 1
    judge.script(400)
    with pytest.raises(BatchError):
        await proxy.batch_embeddings(batch_sentences=[["a"]], model="e", on_error="raise")
