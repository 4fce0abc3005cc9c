"""`check` and `rewards`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from reward_service.scorers import registry
from reward_service.testing.fake_server import FakeRewardServer
from reward_service.testing.local import local_service

CONFIGS = Path(__file__).parents[3] / "configs"

PARTLY_FAILING = """
rewards:
  - {name: good, scorer: "reward_service.testing.scorers:Noop", num_gpus: 0, num_replicas: 2}
  - name: bad
    scorer: "reward_service.testing.scorers:Scripted"
    num_gpus: 0
    max_start_attempts: 1
    params: {fail: the weights are missing}
"""


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.name)
def test_check_shows_a_config(run, path):
    """`check` prints each reward of a good configuration."""
    from reward_service.config import load_config

    ran = run("check", path)
    assert ran.code == 0
    for reward in load_config(path).rewards:
        assert reward.name in ran.out


def test_check_lists_problems(run, tmp_path):
    """`check` puts every problem on a line of its own on stderr, and exits 2."""
    config = tmp_path / "bad.yaml"
    config.write_text("server: {port: x}\nrewards:\n  - {name: a, scorer: nothing}\n")
    ran = run("check", config)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 2)


def test_rewards_lists_scorers(run):
    """Without a URL `rewards` shows each registered scorer with its module and sub-metrics."""
    ran = run("rewards")
    assert ran.code == 0
    lines = {line.split()[1]: line for line in ran.out.splitlines() if line.startswith("│")}
    assert set(lines) == set(registry.names())
    assert "reward_service.scorers.jpeg" in lines["jpeg_compressibility"]
    assert lines["jpeg_compressibility"].count("jpeg_compressibility") == 2


async def test_rewards_of_a_service(run):
    """With a URL `rewards` shows the state of each replica, and why one failed."""
    async with local_service(PARTLY_FAILING) as service:
        ran = await asyncio.to_thread(run, "rewards", "--url", service.url + "/")
    assert ran.code == 0
    (good,) = (line for line in ran.out.splitlines() if line.startswith("│ good"))
    (bad,) = (line for line in ran.out.splitlines() if line.startswith("│ bad"))
    assert "2 × reward_service.testing.scorers:Noop:ready" in good
    assert "failed" in bad
    assert "the weights are missing" in ran.out


def test_rewards_of_nobody(run):
    """A service that does not answer is exit code 1."""
    with FakeRewardServer() as stopped:
        url = stopped.url
    ran = run("rewards", "--url", url)
    assert ran.code == 1
    assert url in ran.err
    assert "check that the service runs" in ran.err


def test_rewards_of_something_else(run):
    """A URL without a scheme is wrong usage; a page without rewards is named as such."""
    assert run("rewards", "--url", "localhost:8080").code == 2
    with FakeRewardServer() as server:
        ran = run("rewards", "--url", f"{server.url}/elsewhere")
    assert ran.code == 1
    assert "is this a reward service?" in ran.err
