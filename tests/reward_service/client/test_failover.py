"""Several base URLs: who is asked, and who is spared."""

import threading

import pytest

from reward_service.client import RewardClient, ServiceUnavailable
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(60)


def test_a_dead_url_costs_no_pause(server, dead_url, asking):
    """The next attempt goes elsewhere at once: with a retry_delay of weeks a pause would not end."""
    with RewardClient([dead_url, server.url], retry_delay=1e6) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
        assert client.health()["status"] == "ok"
        assert client.rewards() == ["clip", "ocr"]


def test_a_failed_url_rests(server, second_server, asking):
    """After one failure the healthy server gets everything for a while, with the same key on failover."""
    server.faults.append(Fault(status=503, headers={"Retry-After": "100"}))
    second_server.faults.append(Fault(status=503, headers={"Retry-After": "0"}))
    with RewardClient([server.url, second_server.url]) as client:
        for _ in range(5):
            client.score([asking("a")])
    assert len(server.posts) == 1
    assert len(second_server.posts) == 6
    assert server.posts[0].keys == second_server.posts[0].keys == second_server.posts[1].keys


def test_calls_alternate_between_idle_servers(server, second_server, asking):
    """No server is preferred when both are idle."""
    with RewardClient([server.url, second_server.url]) as client:
        for _ in range(6):
            client.score([asking("a")])
    assert len(server.posts) == len(second_server.posts) == 3


def test_the_server_with_fewer_items_in_flight_is_chosen(server, second_server, asking):
    """While one holds a big request, every small one goes to the other."""
    server.faults.append(Fault(gate=True))
    second_server.faults.append(Fault(gate=True))
    with RewardClient([server.url, second_server.url]) as client:
        big = threading.Thread(target=client.score, args=([asking("big")] * 4,))
        big.start()
        busy, idle = server, second_server
        busy.wait_for(lambda s: len(s.posts) == 1)
        idle.faults.clear()
        for _ in range(3):
            client.score([asking("a")])
        busy.open_gate()
        big.join()
    assert [len(post.requests) for post in busy.posts] == [4]
    assert [len(post.requests) for post in idle.posts] == [1, 1, 1]


def test_all_urls_down_are_all_named(dead_url, server, asking):
    """The summary has one entry per URL."""
    server.faults += [Fault(status=502)] * 9
    with (
        RewardClient([dead_url, server.url], max_retries=3, retry_delay=0.001) as client,
        pytest.raises(ServiceUnavailable) as caught,
    ):
        client.score([asking("a")])
    assert set(caught.value.attempts) == {dead_url, server.url}
    assert "4 times" in str(caught.value)


def test_a_url_given_twice_is_one(server, asking):
    """With and without a slash at the end."""
    with RewardClient([server.url, server.url + "/"]) as client:
        client.score([asking("a")])
        assert repr(client) == f"RewardClient({server.url})"
