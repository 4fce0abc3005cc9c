"""Pools from YAML, their snapshot, and the dashboard."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from qreward.client.pool import ComputePool
from qreward.errors import ConfigError
from qreward.testing import FakeJudge

GOOD = """
spill_on_outage: true
sources:
  - name: local
    base_url: {url}
    models: ["qwen*"]
    max_concurrent: 8
  - name: cloud
    kind: openai
    base_url: {url}
    api_key_env: POOL_TEST_KEY
    requests_per_min: 6000
    tokens_per_min: 100000
    price: 2.5
  - name: rewards
    kind: reward_service
    url: http://127.0.0.1:9
    rewards: [clip]
"""


async def test_a_file_makes_a_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources, limits and keys come from the file and the environment; the key is in no snapshot."""
    monkeypatch.setenv("POOL_TEST_KEY", "very-secret")
    async with FakeJudge() as judge:
        path = tmp_path / "pool.yaml"
        path.write_text(GOOD.format(url=judge.url))
        async with ComputePool.from_yaml(path) as pool:
            assert await pool.chat_completion([{"role": "user", "content": "x"}], "qwen-7b") == "echo:x"
            text = await pool.chat_completion([{"role": "user", "content": "__echo_headers__"}], "gpt")
            assert "Bearer very-secret" in text
            snapshot = pool.snapshot()
    assert [s["name"] for s in snapshot["sources"]] == ["local", "cloud", "rewards"]
    assert "very-secret" not in json.dumps(snapshot)


BAD = """
spill_on_outages: true
sources:
  - name: a
    base_url: http://x/v1
    max_concurent: 8
  - kind: opnai
    name: b
  - name: c
  - name: d
    base_url: http://x/v1
    api_key_env: NOT_SET_ANYWHERE
  - name: e
    base_url: http://x/v1
    weight: 0
"""


def test_all_problems_are_told_with_their_lines(tmp_path: Path) -> None:
    """Unknown fields with a suggestion, missing ones, unset keys and bad values, each with its line, at once."""
    path = tmp_path / "pool.yaml"
    path.write_text(BAD)
    with pytest.raises(ConfigError) as failure:
        ComputePool.from_yaml(path)
    lines = str(failure.value).splitlines()
    expected = [
        ("2", "did you mean 'spill_on_outage'?"),
        ("6", "did you mean 'max_concurrent'?"),
        ("7", "did you mean 'openai'?"),
        ("9", "needs 'base_url'"),
        ("10", "'NOT_SET_ANYWHERE' is not set"),
        ("13", "weight must be > 0"),
    ]
    assert len(lines) == len(expected)
    for line, (number, words) in zip(lines, expected, strict=True):
        assert line.startswith(f"{path}:{number}: ")
        assert words in line


ODD = [
    ("max_attempts: 0\n", "max_attempts must be >= 1, got 0"),
    ("? [x]\n: 2\n", "a key must be a plain word"),
    ("spill_on_outage: true\nspill_on_outage: false\n", "'spill_on_outage' stands there twice"),
    ("sources: [{name: a, base_url: 'http://x/v1', price: !!python/none x}]\n", "python/none"),
    ("sources: [{name: a, base_url: 'http://x/v1', models: 3}]\n", "names of models"),
    ("sources: [{name: a, base_url: 'http://x/v1', api_key_env: [x]}]\n", "api_key_env must be the name"),
]


@pytest.mark.parametrize(("text", "words"), ODD)
def test_odd_values_are_problems_with_a_line(tmp_path: Path, text: str, words: str) -> None:
    """Whatever stands in a file, the error is a ConfigError with file and line."""
    path = tmp_path / "pool.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as failure:
        ComputePool.from_yaml(path)
    line = next(line for line in str(failure.value).splitlines() if words in line)
    assert line.startswith(f"{path}:")


def test_a_key_in_the_wrong_place_is_not_shown(tmp_path: Path) -> None:
    """A key written where the name of its variable belongs appears in no message."""
    path = tmp_path / "pool.yaml"
    path.write_text("sources: [{name: a, base_url: 'http://x/v1', api_key_env: sk-very-secret}]")
    with pytest.raises(ConfigError, match="name of an environment variable") as failure:
        ComputePool.from_yaml(path)
    assert "secret" not in str(failure.value)


@pytest.mark.parametrize("text", ["", "[]", "sources: []", "sources: [", "sources: 3"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    """Empty, shapeless and broken files are errors that name the file."""
    path = tmp_path / "pool.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"pool\.yaml"):
        ComputePool.from_yaml(path)


async def test_the_dashboard_shows_a_running_pool(tmp_path: Path) -> None:
    """`python -m qreward.top FILE --once` prints a row per source of the pool that publishes there."""
    path = tmp_path / "pool.json"
    async with FakeJudge() as judge:
        from qreward.client.pool import OpenAISource

        async with ComputePool([OpenAISource("judge-a", judge.url, api_key="k", price=1.0)]) as pool:
            for i in range(3):
                await pool.chat_completion([{"role": "user", "content": str(i)}], "m")
            pool.serve_snapshot(path)
            done = subprocess.run(
                [sys.executable, "-m", "qreward.top", str(path), "--once"],
                capture_output=True,
                text=True,
                check=True,
                env={"COLUMNS": "140", "PATH": ""},
            )
    assert "nobody waits" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "judge-a" in line)
    assert "healthy" in row
    assert " 3 " in row
    assert path.stat().st_mode & 0o077 == 0


def test_a_dashboard_without_a_pool_says_what_to_do(tmp_path: Path) -> None:
    """A missing file is an error with advice."""
    done = subprocess.run(
        [sys.executable, "-m", "qreward.top", str(tmp_path / "none.json"), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "serve_snapshot" in done.stderr
