"""How a service starts, refuses to start, and ends: exit codes, messages, and no process left."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from .conftest import Service, item, reward, wait_until

pytestmark = pytest.mark.integration
Start = Callable[..., Service]


async def test_sigterm_answers_what_is_in_flight(start: Start, tmp_path: Path) -> None:
    """SIGTERM with 60 requests in flight: 60 answers, new work refused, exit code 0, no process left."""
    params = {"record": str(tmp_path / "record"), "wait_for": str(tmp_path / "gate")}
    service = start(reward(params=params))
    service.wait_ready()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def call(number: int) -> object:
            body = {"requests": [item(f"item {number}")]}
            async with session.post(service.url + "/score", json=body) as response:
                return response.status, (await response.json())["results"]

        calls = [asyncio.create_task(call(number)) for number in range(60)]
        in_flight = lambda: service.get("/health")[1]["requests_in_flight"] == 60  # noqa: E731
        await asyncio.to_thread(wait_until, in_flight, "60 requests in flight")
        service.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(wait_until, lambda: service.get("/readyz")[0] == 503, "draining")
        async with session.post(service.url + "/score", json={"requests": [item("too late")]}) as late:
            assert late.status == 503
            assert int(late.headers["Retry-After"]) >= 1
        (tmp_path / "gate").touch()
        assert await asyncio.gather(*calls) == [(200, [{"s": {"value": 1.0}}])] * 60
    assert await asyncio.to_thread(service.stop) == 0
    assert "too late" not in (tmp_path / "record").read_text()


@pytest.mark.parametrize("when", ["while Ray starts", "while a scorer loads"])
def test_ctrl_c_during_start_leaves_nothing_behind(start: Start, tmp_path: Path, when: str) -> None:
    """SIGINT before the service is ready ends everything that was started."""
    service = start(reward(params={"build_after": str(tmp_path / "never")}))
    if when == "while Ray starts":
        wait_until(lambda: service.remember() or any("gcs" in one.name() for one in service.leftovers()), "Ray")
    else:
        wait_until(lambda: service.get("/readyz")[0] == 503 and "loading" in service.output(), "loading")
        assert service.get("/health")[1]["rewards"] == {"s": ["reward_service.testing.scorers:Scripted:loading"]}
    service.stop(signal.SIGINT)


def test_a_killed_gateway_takes_its_scorers_along(start: Start) -> None:
    """kill -9 of the service leaves no process: not a scorer, not an actor, not Ray."""
    service = start(reward(), reward("noop", "Noop"))
    service.wait_ready()
    service.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"num_gpus": 3, "num_replicas": 2}, ["2", "6", "GPU"]),
        ({"num_gpus": 1, "runtime_env": "missing.txt"}, ["runtime_env", "missing.txt"]),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    start: Start, fields: dict[str, object], words: list[str]
) -> None:
    """An impossible placement (with its arithmetic) and a broken config end with exit code 2 and no traceback."""
    service = start(reward(**fields))
    assert service.process.wait(90) == 2
    assert all(word in service.output() for word in words)
    assert "Traceback" not in service.output()


def test_a_taken_port_is_refused_before_ray_starts(start: Start) -> None:
    """The port is tried first: exit code 2 and a message that names it."""
    service = start(reward())
    service.kill()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        second = start(reward(), options=("--port", str(port)))
        assert second.process.wait(90) == 2
        assert str(port) in second.output()
        assert "Ray" not in second.output()


def test_a_failed_reward_does_not_stop_the_others(start: Start) -> None:
    """A constructor that keeps failing is `failed` with its reason in /health; an optional one leaves us ready."""
    service = start(
        reward("good"), reward("bad", required=False, max_start_attempts=2, params={"fail": "no weights here"})
    )
    service.wait_ready()
    status, health = service.get("/health")
    assert (status, health["status"]) == (200, "degraded")
    assert health["rewards"]["bad"] == ["reward_service.testing.scorers:Scripted:failed"]
    assert "no weights here" in health["details"]["bad"]["replicas"][0]["reason"]
    assert service.stop() == 0
