"""Lost, late and refused requests: what is sent again, with which keys, and when it ends."""

import asyncio
import pickle
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import aiohttp
import pytest

from reward_service.client import (
    AsyncRewardClient,
    RequestRefused,
    RewardClient,
    ServiceUnavailable,
)
from reward_service.client.courier import Courier, Outgoing
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize(
    "fault",
    [
        *(Fault(status=status) for status in (408, 429, 502, 503, 504)),
        Fault(drop=True),
        Fault(drop=True, after_scoring=True),
        Fault(status=503, after_scoring=True),
    ],
    ids=lambda fault: f"{fault.status or 'drop'}{'-scored' * fault.after_scoring}",
)
def test_a_passing_trouble_is_cured_with_the_same_keys(server, asking, fault):
    """Two POSTs carry equal keys, and no item is scored twice."""
    server.faults.append(fault)
    with RewardClient(server.url, retry_delay=0.001) as client:
        assert client.score([asking("four"), asking("a")]) == [
            {"clip": {"clip": 4.0}},
            {"clip": {"clip": 1.0}},
        ]
    first, second = server.posts
    assert first.keys == second.keys
    assert len(set(first.keys)) == 2
    assert set(server.scored.values()) == {1}


def test_a_read_timeout_is_sent_again_with_the_same_keys(server, asking):
    """The server had scored, the answer was lost: the second answer comes from its memory."""
    server.faults.append(Fault(hang=True, after_scoring=True))
    with RewardClient(server.url, timeout=0.3, retry_delay=0.001) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
    assert server.posts[0].keys == server.posts[1].keys
    assert set(server.scored.values()) == {1}


def test_keys_are_made_per_item_and_call_and_given_ones_are_kept(server, asking):
    """The same request object in two calls is two items; a caller's own key is sent as it is."""
    request = asking("a")
    with RewardClient(server.url) as client:
        client.score([request, request])
        client.score([request, asking("b", idempotency_key="mine")])
    keys = [key for post in server.posts for key in post.keys]
    assert len(set(keys)) == 4
    assert keys[-1] == "mine"
    assert request.idempotency_key is None


def test_retries_end_and_tell_what_was_seen(server, asking):
    """1 + max_retries POSTs; the message has URL, reasons and counts; the cause is the last refusal."""
    server.faults += [Fault(drop=True), Fault(status=503), Fault(status=503)]
    with (
        RewardClient(server.url, max_retries=2, retry_delay=0.001) as client,
        pytest.raises(ServiceUnavailable, match=r"3 times.*HTTP 503: scripted fault \(2 times\)") as caught,
    ):
        client.score([asking("a")])
    assert len(server.posts) == 3
    assert list(caught.value.attempts) == [server.url]
    assert isinstance(caught.value.__cause__, RequestRefused)
    assert pickle.loads(pickle.dumps(caught.value)).attempts == caught.value.attempts


def test_nobody_listening(dead_url, asking):
    """The operating system's word, and the chained cause."""
    with (
        RewardClient(dead_url, max_retries=1, retry_delay=0.001) as client,
        pytest.raises(ServiceUnavailable, match="Connection refused") as caught,
    ):
        client.score([asking("a")])
    assert isinstance(caught.value.__cause__, aiohttp.ClientConnectionError)


def test_max_retries_zero_tries_once(server, asking):
    """No retry at all."""
    server.faults.append(Fault(status=503))
    with RewardClient(server.url, max_retries=0) as client, pytest.raises(ServiceUnavailable):
        client.score([asking("a")])
    assert len(server.posts) == 1


def test_health_is_asked_once(dead_url):
    """A probe answers at once: no retries, whatever the settings."""
    with (
        RewardClient(dead_url, max_retries=9, retry_delay=1e6) as client,
        pytest.raises(ServiceUnavailable, match="GET /health failed 1 time:"),
    ):
        client.health()


async def pauses(settings, server, faults, roll=0.5):
    """The pauses that a courier takes over *faults*, slept by nobody."""
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    server.faults.extend(faults)
    courier = Courier(settings, sleep=sleep, roll=lambda: roll)
    body = b'{"requests": []}'
    try:
        await courier.send(Outgoing("POST", "/score", {"Content-Type": "application/json"}, lambda remaining: body))
    finally:
        await courier.aclose()
    return slept


@pytest.fixture
def settings():
    """Settings as the client makes them."""
    return lambda url, **options: RewardClient(url, **options)._settings


async def test_pauses_double_below_a_bound_with_full_jitter(server, settings):
    """A roll of one half gives half of 1, 2, 4 seconds."""
    faults = [Fault(status=503)] * 3
    assert await pauses(settings(server.url), server, faults) == [0.5, 1.0, 2.0]
    longest = await pauses(settings(server.url, max_retries=12), server, [Fault(drop=True)] * 12, roll=1.0)
    assert max(longest) == 30.0


async def test_retry_after_wins_over_the_backoff(server, settings):
    """In seconds, as a date, and as 0; a word that means nothing is ignored."""
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True)
    faults = [Fault(status=429, headers={"Retry-After": value}) for value in ("7", "0", date, "soon")]
    slept = await pauses(settings(server.url, max_retries=4), server, faults)
    assert slept == pytest.approx([7.0, 100.0, 4.0], abs=3)
    assert slept[0] == pytest.approx(7.0, abs=0.5)


async def test_retry_after_counts_with_several_urls_too(server, second_server, settings):
    """When both ask for patience, the one that is ready first is asked again, when it said."""
    server.faults.append(Fault(status=503, headers={"Retry-After": "40"}))
    second_server.faults.append(Fault(status=503, headers={"Retry-After": "7"}))
    slept = await pauses(settings([server.url, second_server.url]), server, [])
    assert slept == pytest.approx([7.0], abs=0.5)
    assert (len(server.posts), len(second_server.posts)) == (1, 2)


def test_retry_after_zero_needs_no_pause(server, asking):
    """With a retry_delay of weeks, only the header can let this test end."""
    server.faults.append(Fault(status=503, headers={"Retry-After": "0"}))
    with RewardClient(server.url, retry_delay=1e6) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]


def test_no_retry_starts_after_the_deadline(server, asking):
    """The server asks for more patience than the call has: it ends at once instead of waiting."""
    server.faults.append(Fault(status=503, headers={"Retry-After": "200"}))
    with RewardClient(server.url) as client, pytest.raises(ServiceUnavailable, match="1 time:"):
        client.score([asking("a")], deadline_s=100.0)
    assert len(server.posts) == 1


def test_a_retry_carries_what_is_left_of_the_deadline(server, asking):
    """The second attempt's deadline_s is smaller than the first's."""
    server.faults.append(Fault(hang=True))
    with RewardClient(server.url, timeout=0.3, retry_delay=0.001) as client:
        client.score([asking("a")], deadline_s=100.0)
    first, second = (post.body["deadline_s"] for post in server.posts)
    assert second < first <= 100.0


async def test_cancelling_a_call_cancels_its_post(server, asking):
    """The server sees the client go, so that it can drop the work."""
    server.faults.append(Fault(hang=True))
    async with AsyncRewardClient(server.url) as client:
        call = asyncio.create_task(client.score([asking("a")]))
        await asyncio.to_thread(server.wait_for, lambda s: len(s.posts) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.to_thread(server.wait_for, lambda s: s.aborted == 1)
        assert await client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]


def test_connections_are_reused(server, asking):
    """Sequential calls, GET included, share one connection."""
    with RewardClient(server.url) as client:
        for _ in range(3):
            client.score([asking("a")])
    assert len({post.port for post in server.posts}) == 1


def test_proxies_of_the_environment_are_used_only_on_request(server, dead_url, asking, monkeypatch):
    """A dead proxy does not matter by default, and does with trust_env."""
    monkeypatch.setenv("http_proxy", dead_url)
    monkeypatch.setenv("no_proxy", "")
    with RewardClient(server.url, max_retries=0) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
    with (
        RewardClient(server.url, max_retries=0, trust_env=True) as client,
        pytest.raises(ServiceUnavailable, match="cannot connect"),
    ):
        client.score([asking("four")])
