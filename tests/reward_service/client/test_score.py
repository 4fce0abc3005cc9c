"""What `score` and `score_detailed` send, return, warn and raise."""

import math
import pickle
import warnings

import msgspec
import pytest

from reward_service.client import (
    Aggregation,
    AsyncRewardClient,
    ClientClosed,
    InvalidAnswer,
    RequestRefused,
    RewardClient,
    RewardRequest,
    RewardWarning,
    ScoreError,
    ServiceUnavailable,
)
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(60)


def partly_failing(request):
    """clip succeeds, hpsv2 has a null, ocr is only in errors, wise is nowhere."""
    results = {"clip": {"clip": 0.5}, "hpsv2": {"hpsv2": None, "b": 1}}
    errors = {"hpsv2": "ValueError('not finite')", "ocr": "ValueError('unreadable')"}
    wanted = request["required_rewards"]
    return {k: v for k, v in results.items() if k in wanted}, {k: v for k, v in errors.items() if k in wanted}


@pytest.fixture
def failing(server):
    """The server, with rewards that fail in every way."""
    server.rewards = ["clip", "hpsv2", "ocr", "wise"]
    server.scorer = partly_failing
    return server


def test_scores_come_back_in_order(server, asking, prompts):
    """One POST, results in the order of the requests."""
    with RewardClient(server.url) as client:
        results = client.score([asking("four"), asking("a"), asking("seventh")])
    assert results == [{"clip": {"clip": 4.0}}, {"clip": {"clip": 1.0}}, {"clip": {"clip": 7.0}}]
    assert [post.texts for post in server.posts] == [["four", "a", "seventh"]]


async def test_the_async_client_does_the_same(server, asking):
    """AsyncRewardClient: score, score_detailed, health, rewards, as a context manager."""
    async with AsyncRewardClient(server.url) as client:
        assert await client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
        assert (await client.score_detailed([asking("a")])).errors == [{}]
        assert (await client.health())["status"] == "ok"
        assert await client.rewards() == ["clip", "ocr"]


def test_health_and_rewards(server):
    """The two GET endpoints, parsed."""
    with RewardClient(server.url + "/") as client:
        assert client.health() == {"status": "ok", "rewards": {"clip": ["clip:ready"], "ocr": ["ocr:ready"]}}
        assert client.rewards() == ["clip", "ocr"]


def test_an_empty_list_costs_no_post(server):
    """Nothing in, nothing out, nothing sent."""
    with RewardClient(server.url) as client:
        assert client.score([]) == []
        assert client.score_detailed([], aggregation={}).aggregated == []
    assert server.posts == []


def test_the_whole_request_arrives(server, picture):
    """Turns, metadata, videos and identity travel under their wire names; what is None is not sent."""
    request = RewardRequest(
        history=[("before", picture), ("after", None), ("both", picture)],
        required_rewards=["clip", "ocr"],
        metadata={"tag": "colors", "n": [1, None], "nan": math.nan},
        videos=[None, b"video bytes", "/clips/a.mp4"],
        request_id="r",
        sample_id="s",
        group_id="g",
        source_rank=3,
        policy_version=7,
        scorer_version="v2",
        idempotency_key="k",
    )
    with RewardClient(server.url) as client:
        client.score([request])
    (sent,) = server.posts[0].requests
    first, second, third = sent.pop("history")
    assert set(first) == {"text", "image_b64"}
    assert set(second) == {"text", "video_b64"}
    assert third["video_path"] == "/clips/a.mp4"
    assert sent == {
        "required_rewards": ["clip", "ocr"],
        "metadata": {"tag": "colors", "n": [1, None], "nan": None},
        "request_id": "r",
        "sample_id": "s",
        "group_id": "g",
        "source_rank": 3,
        "policy_version": 7,
        "scorer_version": "v2",
        "idempotency_key": "k",
    }


def test_top_level_options_are_sent_only_when_given(server, asking):
    """aggregation, priority and deadline_s; without them the body is that of the existing SDK."""
    with RewardClient(server.url) as client:
        client.score([asking("a")])
        client.score([asking("a")], priority=0, deadline_s=30.0, aggregation=Aggregation("max", {"clip": 2.0}))
    plain, full = (post.body for post in server.posts)
    assert set(plain) == {"protocol_version", "requests"}
    assert plain["protocol_version"] == "1"
    assert full["priority"] == 0
    assert 0 < full["deadline_s"] <= 30.0
    assert full["aggregation"] == {"method": "max", "weights": {"clip": 2.0}, "sub_metric_reduce": "first"}


def test_aggregated_comes_from_the_server_or_is_made_here(server, asking):
    """An older server does not aggregate; the caller gets the same numbers."""
    bare = b'{"results": [{"clip": {"clip": 2.0}, "ocr": {"ocr": 6.0}}], "errors": [{}]}'
    server.faults.append(Fault(status=200, body=bare))
    with RewardClient(server.url) as client:
        made_here = client.score_detailed([asking("x", rewards=["clip", "ocr"])], aggregation={"method": "mean"})
        from_server = client.score_detailed([asking("four")], aggregation={"method": "mean"})
        unasked = client.score_detailed([asking("four")])
    assert made_here.aggregated == [4.0]
    assert from_server.aggregated == [4.0]
    assert unasked.aggregated is None


def test_headers_are_sent(server, asking):
    """The caller's headers reach the server; the client says who it is."""
    with RewardClient(server.url, headers={"Authorization": "Bearer t"}) as client:
        client.score([asking("a")])
        assert "Bearer" not in repr(client)
    assert server.posts[0].headers["Authorization"] == "Bearer t"
    assert server.posts[0].headers["User-Agent"].startswith("reward-service-client/")


def test_failures_warn_once_per_call_with_counts(failing, asking):
    """null becomes NaN, a reward that is only in errors is absent, and one warning tells about all."""
    requests = [asking("a", rewards=["clip", "hpsv2", "ocr", "wise"])] * 2
    with (
        RewardClient(failing.url) as client,
        pytest.warns(RewardWarning, match=r"2 of 2 items.*hpsv2 2, ocr 2, wise 2.*unreadable.*3 more") as caught,
    ):
        results = client.score(requests)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert set(results[0]) == {"clip", "hpsv2"}
    assert math.isnan(results[0]["hpsv2"]["hpsv2"])
    assert results[0]["hpsv2"]["b"] == 1.0


def test_score_detailed_holds_both_sides_and_is_silent(failing, asking):
    """Every required reward is in results or in errors, also one that the server forgot."""
    with RewardClient(failing.url) as client:
        answer = client.score_detailed([asking("a", rewards=["clip", "hpsv2", "ocr", "wise"], sample_id="s1")])
    assert answer.results[0]["clip"] == {"clip": 0.5}
    assert set(answer.errors[0]) == {"hpsv2", "ocr", "wise"}
    assert "missing" in answer.errors[0]["wise"]
    assert answer.failures == 3
    assert answer.identities[0]["sample_id"] == "s1"
    assert answer.protocol_version == "1"


def test_a_null_without_an_error_is_still_a_failure(server, asking):
    """Older servers send null and no error."""
    server.scorer = lambda request: ({"clip": {"clip": None}}, {})
    with RewardClient(server.url) as client:
        assert client.score_detailed([asking("a")]).errors == [{"clip": "not a finite number: clip"}]


def test_on_error_raise_carries_the_answer(failing, asking):
    """ScoreError.response has what succeeded, here and after pickling."""
    with RewardClient(failing.url, on_error="raise") as client, pytest.raises(ScoreError) as caught:
        client.score([asking("a", rewards=["clip", "ocr"])])
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.response.results == [{"clip": {"clip": 0.5}}]
    assert "unreadable" in str(error)


def test_on_error_ignore_is_silent(failing, asking):
    """No warning, no exception."""
    with RewardClient(failing.url, on_error="ignore") as client, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert client.score([asking("a", rewards=["ocr"])]) == [{}]


@pytest.mark.parametrize("status", [400, 404, 409, 422, 500])
def test_a_refusal_is_raised_at_once(server, asking, status):
    """One POST only; status and the server's explanation are on the exception, also after pickling."""
    body = b'{"detail": [{"loc": ["body", "requests"], "msg": "Field required"}]}'
    server.faults.append(Fault(status=status, body=body))
    with RewardClient(server.url) as client, pytest.raises(RequestRefused) as caught:
        client.score([asking("a")])
    error = pickle.loads(pickle.dumps(caught.value))
    assert error.status == status
    assert error.message == "body.requests: Field required"
    assert len(server.posts) == 1


def test_a_redirect_names_the_target(server, asking):
    """A POST is not silently turned into a GET."""
    server.faults.append(Fault(status=307, headers={"Location": "https://elsewhere/score"}))
    with RewardClient(server.url) as client, pytest.raises(RequestRefused, match="https://elsewhere/score"):
        client.score([asking("a")])


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"<html>", "<html>"),
        (b"[]", "list"),
        (b"{}", "no results"),
        (b'{"results": []}', "0 results for 1 requests"),
        (b'{"results": [{}, {}]}', "2 results for 1 requests"),
        (b'{"results": [{"clip": 0.5}]}', "clip"),
        (b'{"results": [{}], "errors": [[]]}', "errors"),
        (b'{"results": [{}], "protocol_version": "2"}', "protocol_version '2'"),
        (
            b'{"results": [{}], "identities": [{"sample_id": "other"}]}',
            "sample_id 's1' but answered with 'other'",
        ),
    ],
)
def test_a_broken_answer_is_an_error_not_a_guess(server, asking, body, word):
    """Scores are never attributed to the wrong request."""
    server.faults.append(Fault(status=200, body=body))
    with RewardClient(server.url) as client, pytest.raises(InvalidAnswer, match=word):
        client.score([asking("a", sample_id="s1")])


def test_msgpack_carries_raw_bytes_both_ways(server, picture):
    """Same fields, `image` and `video` raw, and the answer comes as msgpack too."""
    file = b"\x89any file\x00\xff"
    request = RewardRequest([("four", file)], ["clip"], {"k": {"n": 1}}, videos=[b"\x00video"])
    with RewardClient(server.url, body_format="msgpack") as client:
        answer = client.score_detailed([request], aggregation={})
    post = server.posts[0]
    assert post.headers["Content-Type"] == "application/x-msgpack"
    assert post.headers["Accept"].startswith("application/x-msgpack")
    assert post.requests[0]["history"] == [{"text": "four", "image": file, "video": b"\x00video"}]
    assert post.requests[0]["metadata"] == {"k": {"n": 1}}
    assert answer.results == [{"clip": {"clip": 4.0}}]
    assert answer.aggregated == [4.0]


def test_a_refusal_in_msgpack_is_readable(server, asking):
    """A client that accepts msgpack gets its refusals in it."""
    with (
        RewardClient(server.url, body_format="msgpack") as client,
        pytest.raises(RequestRefused) as caught,
    ):
        client.score([asking("a", rewards=["nope"])])
    assert caught.value.message == "requests[0]: unknown reward 'nope'; available: ['clip', 'ocr']"


def test_a_msgpack_answer_is_read_by_its_content_type(server, asking):
    """What the server says it sends decides, not what was sent."""
    packed = msgspec.msgpack.encode({"results": [{"clip": {"clip": 9.0}}]})
    server.faults.append(Fault(status=200, body=packed, headers={"Content-Type": "application/x-msgpack"}))
    with RewardClient(server.url, body_format="msgpack") as client:
        assert client.score([asking("a")]) == [{"clip": {"clip": 9.0}}]


def test_a_closed_client_says_so(server, asking):
    """close() is final, and closing twice is harmless."""
    client = RewardClient(server.url)
    client.score([asking("a")])
    client.close()
    client.close()
    with pytest.raises(ClientClosed):
        client.score([asking("a")])


def test_passwords_in_urls_stay_out_of_messages(dead_url, asking):
    """Neither repr nor errors show what stands before the @."""
    url = dead_url.replace("http://", "http://user:secret@")
    with RewardClient(url, max_retries=0) as client, pytest.raises(ServiceUnavailable) as caught:
        client.score([asking("a")])
    assert "secret" not in str(caught.value) + repr(client)
    assert dead_url in str(caught.value)
