"""Long calls in parts: limits that are given, and limits that are learned."""

import threading

import pytest

from reward_service.client import ClientClosed, ItemTooLarge, RequestRefused, RewardClient, ServiceUnavailable
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(60)


def sizes(server):
    """Items per POST, sorted: parts of a call are on their way at once."""
    return sorted(len(post.requests) for post in server.posts)


def test_a_call_is_cut_by_items_and_joined_in_order(server, asking, prompts):
    """10 items at 4 per request: 4, 4, 2, and the order of the caller."""
    with RewardClient(server.url, max_items_per_request=4) as client:
        results = client.score([asking("x" * n) for n in range(1, 11)])
    assert prompts(results) == list(range(1, 11))
    assert sizes(server) == [2, 4, 4]


@pytest.mark.parametrize("body_format", ["json", "msgpack"])
def test_a_call_is_cut_by_bytes(server, asking, prompts, body_format):
    """No body is above max_body_bytes, and no body is smaller than it has to be."""
    requests = [asking("x" * n, image=bytes(1000)) for n in range(1, 8)]
    with RewardClient(server.url, max_body_bytes=5000, body_format=body_format) as client:
        assert prompts(client.score(requests, aggregation={})) == list(range(1, 8))
    assert max(post.size for post in server.posts) <= 5000
    assert sizes(server) == [1, 3, 3] if body_format == "json" else sizes(server) == [3, 4]


def test_parts_of_a_call_are_on_their_way_together(server, asking):
    """All parts arrive before the first is answered."""
    server.faults += [Fault(gate=True)] * 4
    with RewardClient(server.url, max_items_per_request=1) as client:
        call = threading.Thread(target=client.score, args=([asking("a")] * 4,))
        call.start()
        server.wait_for(lambda s: len(s.posts) == 4)
        server.open_gate()
        call.join()


def test_an_item_over_max_body_bytes_is_refused_before_anything_is_sent(server, asking):
    """It is named by its index."""
    requests = [asking("a", image=b"s"), asking("b", image=bytes(9000))]
    with (
        RewardClient(server.url, max_body_bytes=5000) as client,
        pytest.raises(ItemTooLarge, match=r"^item 1: .*max_body_bytes=5000") as caught,
    ):
        client.score(requests)
    assert caught.value.status == 413
    assert server.posts == []


def test_a_413_halves_the_request_and_is_remembered(server, asking, prompts):
    """The server takes 3 items: 10 → 5 → 3 + 2, and later calls start with 3."""
    server.max_items = 3
    with RewardClient(server.url) as client:
        assert prompts(client.score([asking("x" * n) for n in range(1, 11)])) == list(range(1, 11))
        server.posts.clear()
        assert prompts(client.score([asking("x" * n) for n in range(1, 9)])) == list(range(1, 9))
    assert sizes(server) == [2, 3, 3]
    assert set(server.scored.values()) == {1}


def test_one_giant_is_named_and_does_not_make_later_requests_small(server, asking):
    """The server refuses by size, without reading the body."""
    server.max_body_bytes = 1_000_000
    requests = [asking("a")] * 5 + [asking("giant", image=bytes(3_000_000))] + [asking("a")] * 2
    with RewardClient(server.url) as client:
        with pytest.raises(ItemTooLarge, match=r"^item 5: .*at most 1000000"):
            client.score(requests)
        server.posts.clear()
        client.score([asking("a")] * 8)
    assert sizes(server) == [8]


def test_a_failing_part_names_its_items(server, asking):
    """The rest of the call ends with it."""
    requests = [asking("a")] * 4 + [asking("b", rewards=["nope"])] + [asking("c")] * 3
    with (
        RewardClient(server.url, max_items_per_request=2) as client,
        pytest.raises(RequestRefused, match=r"^items 4-5: HTTP 400.*nope") as caught,
    ):
        client.score(requests)
    assert caught.value.items == (4, 5)


def test_a_part_that_finds_no_server_names_its_items_and_its_cause(dead_url, asking):
    """ServiceUnavailable, chained."""
    with (
        RewardClient(dead_url, max_items_per_request=2, max_retries=0) as client,
        pytest.raises(ServiceUnavailable, match=r"^items? \d") as caught,
    ):
        client.score([asking("a")] * 3)
    assert caught.value.__cause__ is not None


def test_more_calls_than_connections_wait_for_their_turn(server, asking, prompts):
    """max_connections bounds what is open; waiting does not count against the timeout."""
    with RewardClient(server.url, max_connections=2, max_items_per_request=1) as client:
        assert prompts(client.score([asking("x" * n) for n in range(1, 21)])) == list(range(1, 21))
    assert len({post.port for post in server.posts}) <= 2


def test_closing_ends_calls_in_other_threads(server, asking):
    """With ClientClosed, not with a bare cancellation."""
    server.faults.append(Fault(hang=True))
    seen = []
    client = RewardClient(server.url)

    def call():
        try:
            client.score([asking("a")])
        except ClientClosed as error:
            seen.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    server.wait_for(lambda s: len(s.posts) == 1)
    client.close()
    thread.join()
    assert len(seen) == 1
    server.wait_for(lambda s: s.aborted == 1)
