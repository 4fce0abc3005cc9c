"""`demo`, and services that are started for a command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from PIL import Image

from reward_service.cli.demo import scores_table
from reward_service.client import ScoreResponse
from reward_service.demo_pictures import Sample

MINIMAL = Path(__file__).parents[3] / "configs" / "service.minimal.yaml"


def test_failed_scores_show_their_error(capfd):
    """The table has a row per picture, a column per sub-metric, and errors in their places."""
    from rich.console import Console

    samples = [Sample(name, "a cat", Image.new("RGB", (1, 1))) for name in ("one", "two")]
    response = ScoreResponse(
        [{"clip": {"clip": 0.5}, "video": {"vq": 1.0, "mq": 2.0}}, {"video": {"vq": 3.0, "mq": 4.0}}],
        [{}, {"clip": "TimeoutError('too slow')"}],
    )
    Console(width=140).print(scores_table(samples, ["clip", "video", "gone"], response))
    out = capfd.readouterr().out
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if "│" in line]
    assert rows[0] == ["one", "a cat", "0.5000", "1.0000", "2.0000", "–"]
    assert rows[1] == ["two", "a cat", "TimeoutError('too slow')", "3.0000", "4.0000", "–"]
    assert "video.mq" in out


def test_service_that_does_not_start(run):
    """A service that ends before it is ready ends the command with its reason and exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = run("demo", "--config", MINIMAL, "--port", port)
    assert ran.code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in ran.err
    assert "exit code 2 before it was ready" in ran.err
    assert not psutil.Process().children()


def test_no_such_config(run):
    """A config that is not there is exit code 2, before anything starts."""
    ran = run("demo", "--config", "nowhere.yaml")
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.integration
@pytest.mark.slow
def test_demo(python):
    """The demo starts a real service, scores eight pictures with three rewards, stops it and exits 0."""
    ran = python("-m", "reward_service", "demo", "--port", "0")
    assert ran.code == 0, ran.err
    rows = [line.split("│")[1:-1] for line in ran.out.splitlines() if line.startswith("│")]
    assert len(rows) == 8
    assert all(cell.strip().lstrip("-").replace(".", "").isdecimal() for row in rows for cell in row[2:])
    assert "8 pictures × 3 rewards" in ran.out
    assert "ready: ocr, brisque, jpeg_compressibility" in ran.err


@pytest.mark.integration
@pytest.mark.slow
def test_score_with_a_service_of_its_own(python, tmp_path):
    """`score --config` starts the service, scores, and leaves no process behind."""
    Image.new("RGB", (64, 64), "teal").save(tmp_path / "a.png")
    (tmp_path / "in.csv").write_text("prompt,image\nteal,a.png\n")
    out = tmp_path / "out.jsonl"
    ran = python(
        "-m", "reward_service", "score", tmp_path / "in.csv", "-o", out, "--rewards", "jpeg", "--config", MINIMAL
    )
    assert ran.code == 0, ran.err
    assert '"jpeg.jpeg_compressibility":-' in out.read_text()
    assert not _service_processes(MINIMAL)


@pytest.mark.integration
@pytest.mark.slow
def test_reward_that_does_not_load(python, tmp_path):
    """A required reward that fails ends the command early, with the reward's own reason, and the service."""
    config = tmp_path / "failing.yaml"
    config.write_text(
        "rewards:\n  - name: broken\n    scorer: reward_service.testing.scorers:Scripted\n    num_gpus: 0\n"
        "    max_start_attempts: 1\n    params: {fail: the weights are missing}\n"
    )
    ran = python("-m", "reward_service", "demo", "--config", config, "--port", "0")
    assert ran.code == 1
    assert "the service cannot get ready:\n  broken: " in ran.err
    assert "the weights are missing" in ran.err
    assert not _service_processes(config)


@pytest.mark.integration
@pytest.mark.slow
def test_killed_demo_leaves_nothing(tmp_path):
    """`demo --keep` says where it runs, and its service ends even when it is killed with SIGKILL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reward_service", "demo", "--config", str(MINIMAL), "--port", "0", "--keep"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        running = next(line for line in process.stdout if line.startswith("running at"))
        assert "Ctrl-C stops it" in running
        services = _service_processes(MINIMAL)
        assert services
        process.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(services, timeout=60)
    assert not alive


def _service_processes(config: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "serve" in command and str(config) in command:
            found += [process, *process.children(recursive=True)]
    return found
