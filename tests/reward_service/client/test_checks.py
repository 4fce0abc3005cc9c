"""What is refused before anything is sent, and how it is said."""

import pytest

from reward_service.client import RewardClient, RewardRequest

pytestmark = pytest.mark.timeout(60)
IMAGE = b"image"


@pytest.mark.parametrize(
    ("request_", "error", "word"),
    [
        (RewardRequest([("a", IMAGE)], ["clip"], videos=[None, None]), ValueError, "2 videos for 1 turns"),
        (
            RewardRequest([("a", None)], ["clip"]),
            ValueError,
            r"history\[0\]: a turn needs an image or a video",
        ),
        (
            RewardRequest([("a", IMAGE), ("b", None)], ["clip"], videos=[b"v", None]),
            ValueError,
            r"history\[1\]",
        ),
        (RewardRequest([("a", None)], ["clip"], videos=[3]), TypeError, "not a int"),
        (RewardRequest([], ["clip"]), ValueError, "history is empty"),
        (RewardRequest([("a", IMAGE, 1)], ["clip"]), ValueError, "pair"),
        (RewardRequest("text", ["clip"]), TypeError, "history"),
        (RewardRequest([(b"a", IMAGE)], ["clip"]), TypeError, "text must be a str"),
        (RewardRequest([("\ud800", IMAGE)], ["clip"]), ValueError, "Unicode"),
        (RewardRequest([("a", IMAGE)], "clip"), TypeError, "required_rewards"),
        (RewardRequest([("a", IMAGE)], [1]), TypeError, "reward name"),
        (RewardRequest([("a", IMAGE)], ["clip"], metadata=[1]), TypeError, "metadata"),
        (RewardRequest([("a", IMAGE)], ["clip"], metadata={"x": object()}), TypeError, "metadata"),
        (RewardRequest([("a", IMAGE)], ["clip"], sample_id=1), TypeError, "sample_id"),
        (RewardRequest([("a", IMAGE)], ["clip"], source_rank="0"), TypeError, "source_rank"),
        (RewardRequest([("a", IMAGE)], ["clip"], policy_version=2**63), ValueError, "64 bits"),
        (RewardRequest([("a", 3.5)], ["clip"]), TypeError, "float"),
        ({"history": []}, TypeError, "RewardRequest"),
    ],
)
def test_a_bad_request_is_named_by_its_index_and_nothing_is_sent(server, request_, error, word):
    """The good request before it is not scored either."""
    good = RewardRequest([("a", IMAGE)], ["clip"])
    with RewardClient(server.url) as client, pytest.raises(error, match=rf"requests\[1\].*{word}"):
        client.score([good, request_])
    assert server.posts == []


def test_a_single_request_instead_of_a_list_is_a_type_error(server):
    """The commonest slip gets a sentence of its own."""
    with RewardClient(server.url) as client, pytest.raises(TypeError, match="list of RewardRequest"):
        client.score(RewardRequest([("a", IMAGE)], ["clip"]))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"priority": 10}, ValueError),
        ({"priority": -1}, ValueError),
        ({"priority": "high"}, TypeError),
        ({"priority": True}, TypeError),
        ({"deadline_s": 0}, ValueError),
        ({"deadline_s": float("nan")}, ValueError),
        ({"deadline_s": "10"}, TypeError),
        ({"aggregation": {"method": "median"}}, ValueError),
        ({"aggregation": "mean"}, TypeError),
    ],
)
def test_bad_call_options_are_refused(server, options, error):
    """The message starts with the option's name."""
    (name,) = options
    with RewardClient(server.url) as client, pytest.raises(error, match=name):
        client.score([RewardRequest([("a", IMAGE)], ["clip"])], **options)
    assert server.posts == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"timeout": 0}, ValueError),
        ({"timeout": "60"}, TypeError),
        ({"image_format": "GIF"}, ValueError),
        ({"image_quality": 0}, ValueError),
        ({"image_quality": 101}, ValueError),
        ({"on_error": "log"}, ValueError),
        ({"max_retries": -1}, ValueError),
        ({"retry_delay": -1}, ValueError),
        ({"coalesce_ms": -1}, ValueError),
        ({"max_items_per_request": 0}, ValueError),
        ({"max_body_bytes": 0}, ValueError),
        ({"headers": {"a": 1}}, TypeError),
        ({"encode_threads": 0}, ValueError),
        ({"body_format": "pickle"}, ValueError),
        ({"max_connections": 0}, ValueError),
    ],
)
def test_bad_settings_are_refused_by_name(options, error):
    """At construction, not at the first call."""
    (name,) = options
    with pytest.raises(error, match=name):
        RewardClient("http://localhost:1", **options)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8080", "ftp://host", "http://", "http://host:99999", "http://[::1", "http://h/?q=1", []],
)
def test_a_bad_url_is_refused_with_an_example(url):
    """The message shows how a URL looks."""
    with pytest.raises(ValueError, match="http://localhost:8080"):
        RewardClient(url)


def test_the_positional_parameters_are_those_of_the_existing_sdk(server):
    """base_url, timeout, image_format, image_quality, trust_env."""
    with RewardClient(server.url, 60.0, "PNG", 90, True) as client:
        client.score([RewardRequest([("a", IMAGE)], ["clip"])])
    assert len(server.posts) == 1
