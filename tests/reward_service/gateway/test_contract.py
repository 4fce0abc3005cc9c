"""The wire contract of POST /score and its neighbours, field by field."""

from __future__ import annotations

import base64
import zlib
from pathlib import Path
from typing import Any

import orjson
import pytest

NOBODY = dict.fromkeys(
    (
        "request_id",
        "sample_id",
        "group_id",
        "source_rank",
        "policy_version",
        "scorer_version",
        "idempotency_key",
    )
)
MP4 = b"\0\0\0\x18ftypisom" + bytes(64)


async def test_an_old_clients_request_gets_results_errors_identities_and_version(serve, item) -> None:
    """The fields of the oldest clients are enough; the answer has one entry per request everywhere."""
    async with serve() as caller:
        answer = await caller.score(item("one"), item("raise"))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.body == {
        "results": [{"s": {"value": 1.0}}, {}],
        "errors": [{}, {"s": "ValueError('asked to raise')"}],
        "identities": [NOBODY, NOBODY],
        "protocol_version": "1",
    }


async def test_newer_fields_are_accepted_and_identities_echoed(serve, item) -> None:
    """Each item's identity comes back with it; call_id, grad_mode false and unknown fields do no harm."""
    identity = {
        "request_id": "r-1", "sample_id": "s-1", "group_id": "g-1", "source_rank": 3, "policy_version": -7,
        "idempotency_key": "k-1",
    }  # fmt: skip
    async with serve() as caller:
        answer = await caller.score(
            item("one", **identity), item("two"), item("three", policy_version=2**63 - 1),
            protocol_version="1", grad_mode=False, call_id="c", from_the_future=True,
        )  # fmt: skip
    assert answer.body["identities"] == [
        {**NOBODY, **identity}, NOBODY, {**NOBODY, "policy_version": 2**63 - 1},
    ]  # fmt: skip


async def test_results_follow_requests_and_required_rewards(serve, reward, item) -> None:
    """Whatever finishes first: item i is at position i, its rewards in the order asked for."""
    async with serve(reward(), reward("length", "Noop")) as caller:
        answer = await caller.score(
            *(item("x" * n, *order) for n, order in enumerate([("s", "length"), ("length", "s")] * 8))
        )
    assert [result["length"]["noop"] for result in answer.results] == list(range(16))
    assert [list(result) for result in answer.results] == [["s", "length"], ["length", "s"]] * 8


async def test_sub_metrics_keep_the_order_of_the_scorer(serve, item) -> None:
    """Clients that take the first sub-metric rely on the order of the JSON keys."""
    async with serve() as caller:
        answer = await caller.score(item("two"))
    assert list(answer.results[0]["s"].items()) == [("zeta", 2.0), ("alpha", 1.0)]


async def test_nothing_in_nothing_out(serve, item) -> None:
    """No requests: empty lists. No required rewards: an empty result."""
    async with serve() as caller:
        assert (await caller.score()).body == {
            "results": [], "errors": [], "identities": [], "protocol_version": "1",
        }  # fmt: skip
        answer = await caller.score({**item(), "required_rewards": []}, item())
    assert answer.results == [{}, {"s": {"value": 1.0}}]
    assert answer.errors == [{}, {}]


async def test_a_repeated_reward_is_harmless(serve, item) -> None:
    """A name that is given twice appears once in the result."""
    async with serve() as caller:
        answer = await caller.score(item("x", "s", "s"))
    assert (answer.results, answer.errors) == ([{"s": {"value": 1.0}}], [{}])


async def test_images_and_videos_arrive_as_they_were_sent(serve, reward, item, picture, tmp_path: Path) -> None:
    """A turn may have both; a scorer gets the picture's pixels and the file's bytes, sent or named."""
    (tmp_path / "clip.mp4").write_bytes(MP4)
    both = [{"text": "x", "image_b64": picture((1, 2, 3)), "video_b64": base64.b64encode(MP4).decode()}]
    path = [{"text": "x", "video_path": str(tmp_path / "clip.mp4")}]
    async with serve(reward("sum", "Checksum"), server={"video_roots": [str(tmp_path)]}) as caller:
        answer = await caller.score(*({"history": turns, "required_rewards": ["sum"]} for turns in (both, path)))
    pixels = float(zlib.crc32(bytes((1, 2, 3)) * 256))
    assert answer.results == [
        {"sum": {"image": pixels, "video": float(zlib.crc32(MP4))}},
        {"sum": {"image": 0.0, "video": float(zlib.crc32(MP4))}},
    ]


MIRROR = """
class Mirror:
    def score(self, items):
        return [{f"{i.metadata} {[(t, x and x.size) for t, x in i.history]} {i.videos}": 1.0} for i in items]
"""


async def test_every_turn_and_the_metadata_reach_the_scorer(serve, reward, item, tmp_path, monkeypatch) -> None:
    """History arrives in order with its pictures, metadata untouched, in whatever nesting."""
    (tmp_path / "mirror.py").write_text(MIRROR)
    monkeypatch.chdir(tmp_path)
    turn = item()["history"][0]
    metadata = {"a": [1, {"b": None}], "n": -(2**63), "é": "ü\u0000", "f": 0.1}
    async with serve({**reward("m"), "scorer": "mirror:Mirror"}) as caller:
        turns = [{**turn, "text": "p"}, {**turn, "text": "q"}]
        answer = await caller.score({"history": turns, "required_rewards": ["m"], "metadata": metadata})
    assert list(answer.results[0]["m"]) == [f"{metadata} [('p', (16, 16)), ('q', (16, 16))] None"]


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"history": []}, 400, "requests[0]: history is empty"),
        ({"required_rewards": ["s", "nope"]}, 400, "unknown reward 'nope'; available: s"),
        ({"scorer_version": "1.0"}, 400, "scorer_version cannot be pinned"),
        ({"history": [{"text": "x"}]}, 422, "requests[0].history[0]: no media"),
        ({"history": [{"image_b64": "QUJD"}]}, 422, "history.0.text: Field required"),
        (
            {"history": [{"text": "x", "video_b64": "QUJD", "video_path": "/x"}]},
            422,
            "more than one of video_b64",
        ),
        ({"history": [{"text": "x", "image_ipc": "h"}]}, 422, "image_ipc is not supported"),
        (
            {"history": [{"text": "x", "image_b64": "QUJD", "image_ipc": "h"}]},
            422,
            "image_ipc is not supported",
        ),
        ({"history": [{"text": 1, "image_b64": "QUJD"}]}, 422, "history.0.text"),
        ({"metadata": [1]}, 422, "metadata"),
        ({"source_rank": 2**63}, 422, "source_rank"),
        ({"policy_version": -(2**63) - 1}, 422, "policy_version"),
        ({"required_rewards": "s"}, 422, "required_rewards"),
    ],
)
async def test_an_item_that_breaks_the_contract_refuses_the_post(serve, item, script, reward, change, status, words):
    """One bad item refuses the whole POST, with the place of the mistake, and nothing is scored."""
    async with serve(reward(params=script.params)) as caller:
        answer = await caller.score({**item("bad"), **change}, item("good"))
    assert answer.status == status
    assert words in answer.detail
    assert script.seen == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"requests": [], "protocol_version": "2"}, 400, "protocol_version '2' is not supported"),
        ({"requests": [], "grad_mode": True}, 400, "grad_mode"),
        ({"prompt": "x", "video_b64": "QUJD"}, 422, "requests: Field required"),
        ({"requests": {}}, 422, "requests"),
        ([], 422, "body"),
        (b"", 422, "body"),
        (b"\xff\xfe", 422, "body"),
        (b'{"requests": [', 422, "body"),
        ({"requests": [], "aggregation": {"method": "median"}}, 422, "aggregation.method"),
        ({"requests": [], "aggregation": {"method": "mean", "wights": {}}}, 422, "aggregation.wights"),
        ({"requests": [], "aggregation": {"weights": {"nope": 1}}}, 400, "unknown reward 'nope'"),
        ({"requests": [], "priority": 10}, 422, "priority"),
        ({"requests": [], "deadline_s": 0}, 422, "deadline_s"),
        (b'{"requests": [], "deadline_s": Infinity}', 422, "deadline_s"),
    ],
)
async def test_a_body_that_breaks_the_contract_is_refused(serve, body: Any, status: int, words: str) -> None:
    """Wrong versions are 400, wrong shapes 422, and the answer names the field."""
    async with serve() as caller:
        answer = await caller.post(body)
    assert answer.status == status
    assert words in answer.detail


async def test_a_refusal_does_not_send_the_input_back(serve) -> None:
    """Megabytes of base64 in a wrong place are not echoed."""
    async with serve() as caller:
        answer = await caller.post({"requests": "QUJD" * 100_000})
        assert (answer.status, len(answer.raw) < 500) == (422, True)
        answer = await caller.post({"requests": [{"history": [], "required_rewards": ["n" * 100_000]}] * 20})
    assert len(answer.raw) < 500


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [6.0, None, 5.0]),
        ({"method": "weighted_sum", "weights": {"s": 3, "length": 1}}, [3.5, None, 5.0]),
        ({"method": "mean", "sub_metric_reduce": "first"}, [6.0, None, 5.0]),
        ({"method": "min"}, [1.0, None, 5.0]),
        ({"method": "max"}, [11.0, None, 5.0]),
    ],
)
async def test_aggregation_reduces_each_item_to_one_number(serve, reward, item, how, expected) -> None:
    """Over the rewards that succeeded; null where none did."""
    async with serve(reward(), reward("length", "Noop")) as caller:
        answer = await caller.score(
            item("elevenchars", "s", "length"),
            item("raise", "s"),
            item("raise", "s", "length"),
            aggregation=how,
        )
    assert answer.body["aggregated"] == expected


async def test_aggregation_is_absent_unless_asked_for(serve, item) -> None:
    """Old clients see no new field."""
    async with serve() as caller:
        answer = await caller.score(item())
    assert "aggregated" not in answer.body


async def test_rewards_health_and_probes(serve, reward) -> None:
    """GET /rewards lists sorted names; GET /health the state of every replica in the known shape."""
    async with serve(reward("zeta", "Noop", num_replicas=2), reward("alpha", "Noop")) as caller:
        assert (await caller.get("/rewards")).body == {"rewards": ["alpha", "zeta"]}
        health = await caller.get("/health")
        assert health.status == 200
        assert health.body["status"] == "ok"
        ready = "reward_service.testing.scorers:Noop:ready"
        assert health.body["rewards"] == {"alpha": [ready], "zeta": [ready, ready]}
        assert (await caller.get("/readyz")).body == {"status": "ok"}
        assert (await caller.get("/livez")).status == 200
        refused = await caller.get("/score")
        assert (refused.status, refused.headers["allow"]) == (405, "POST")
        assert (await caller.get("/nowhere")).status == 404


async def test_the_api_describes_itself(serve) -> None:
    """GET /openapi.json describes POST /score, and every reference in it can be followed."""
    async with serve() as caller:
        schema = (await caller.get("/openapi.json")).body
    assert set(schema["paths"]["/score"]["post"]["responses"]) >= {
        "200",
        "400",
        "409",
        "413",
        "422",
        "429",
        "503",
    }
    text = orjson.dumps(schema).decode()
    names = [part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]]
    assert names
    assert set(names) <= set(schema["components"]["schemas"])
