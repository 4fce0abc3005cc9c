"""The benchmark: its load, its numbers, its failures, its files."""

from __future__ import annotations

import asyncio
import json
import math
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward_service.bench.load import Point, Result, take_answer
from reward_service.bench.stats import PERCENTILES, percentiles
from reward_service.testing.fake_server import FakeRewardServer, Fault
from reward_service.testing.local import local_service

SCRIPT = Path(__file__).parents[3] / "scripts" / "bench_concurrent.py"


def test_closed_loop(bench, server):
    """With N callers exactly N requests are on their way until one is answered; the total is sent, no more."""
    server.faults += [Fault(gate=True)] * 5
    held = []

    def watch() -> None:
        server.wait_for(lambda s: len(s.posts) == 5)
        # All five callers wait; only an answer lets them send more.
        held.append(len(server.posts))
        server.open_gate()

    watcher = threading.Thread(target=watch)
    watcher.start()
    ran = bench("--concurrency", 5, "--total", 23)
    watcher.join()
    assert ran.code == 0
    assert held == [5]
    assert len(server.posts) == 23
    assert len({post.port for post in server.posts}) == 5
    assert ran.runs[0]["successful_requests"] == 23


def test_what_is_sent(bench, server, tmp_path):
    """Prompt, pictures and rewards arrive as given; a batch has as many items as asked, its pictures in turn."""
    for name, colour in (("a.png", "red"), ("b.png", "blue")):
        Image.new("RGB", (4, 4), colour).save(tmp_path / name)
    bench(
        "--concurrency", 1, "--total", 1, "--batch-size", 3, "--prompt", "a dog", "--rewards", "clip,ocr",
        "--image", tmp_path / "a.png", tmp_path / "b.png",
    )  # fmt: skip
    (post,) = server.posts
    assert post.texts == ["a dog"] * 3
    assert [request["required_rewards"] for request in post.requests] == [["clip", "ocr"]] * 3
    files = [(tmp_path / name).read_bytes() for name in ("a.png", "b.png", "a.png")]
    assert [post.media(i) for i in range(3)] == files


def test_painted_pictures_differ(bench, server):
    """Without --image every item of a batch has a picture of its own."""
    bench("--concurrency", 1, "--total", 1, "--batch-size", 16)
    assert len({server.posts[0].media(i) for i in range(16)}) == 16


def test_levels(bench, server):
    """Every combination of callers, batch sizes and repetitions is measured, each reward alone if asked."""
    ran = bench(
        "--sweep", 1, 2, "--batch-size", 9, "--batch-sweep", 1, 3, "--repetitions", 2, "--total", 4,
        "--rewards", "clip", "ocr", "--per-reward-isolated",
    )  # fmt: skip
    assert ran.code == 0
    runs = {
        (run["repetition"], *run["rewards"], run["concurrency"], run["batch_size"]): run["successful_requests"]
        for run in ran.runs
    }
    assert runs == {(r, name, c, b): 4 for r in (1, 2) for name in ("clip", "ocr") for c in (1, 2) for b in (1, 3)}
    sizes = Counter((len(post.requests), *post.requests[0]["required_rewards"]) for post in server.posts)
    assert sizes == {(b, name): 16 for b in (1, 3) for name in ("clip", "ocr")}
    assert "items/s (p95 in ms)" in ran.out


def test_output_file(bench, tmp_path):
    """--output has every score; its throughput is items of successful requests over the time they took."""
    path = tmp_path / "out.json"
    bench("--concurrency", 2, "--total", 6, "--batch-size", 2, "--prompt", "abcd", "--output", path)
    written = json.loads(path.read_text())
    (run,) = written["runs"]
    assert written["rewards"] == run["rewards"] == ["clip"]
    assert run["scores"] == {"clip.clip": {"count": 12, "mean": 4.0, "values": [4.0] * 12}}
    assert run["items_per_second"] == pytest.approx(12 / run["seconds"], rel=0.01)
    latencies = [run["latency_ms"][name] for name in ("p50", "p90", "p95", "p99", "max")]
    assert latencies == sorted(latencies)
    assert latencies[0] > 0


def test_transport_errors(bench, server):
    """Requests without an answer are counted by class or status, and the exit code is 3."""
    server.faults += [Fault(drop=True), Fault(status=503), Fault(status=503), Fault(status=200, body=b"{}")]
    ran = bench("--concurrency", 1, "--total", 10)
    assert ran.code == 3
    (run,) = ran.runs
    assert run["transport_errors"] == {"ServerDisconnectedError": 1, "HTTP 503": 2, "InvalidAnswer": 1}
    assert (run["successful_requests"], run["failed_requests"]) == (6, 4)
    assert "HTTP 503: 2" in ran.out


def test_timeout(bench, server):
    """A request that takes longer than --timeout is a failure of its class."""
    server.faults += [Fault(hang=True)]
    ran = bench("--concurrency", 1, "--total", 2, "--timeout", 0.2)
    assert ran.code == 3
    assert ran.runs[0]["failed_requests"] == 1
    assert "TimeoutError" in "".join(ran.runs[0]["transport_errors"])


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        ({}, "missing"),
        ({"clip": {}}, "empty"),
        ({"clip": {"clip": None}}, "null"),
        ({"clip": {"clip": True}}, "not a number"),
        ({"clip": {"a": 1.0, "b": None}}, "half of it"),
    ],
)
def test_scores_that_are_none(bench, server, scores, why):
    """A missing, empty or non-finite score makes its request a failure, and is counted for its reward."""
    good = {"clip": {"clip": 1.0}, "ocr": {"ocr": 1.0}}
    answers = iter([good | {"clip": None} | scores, good])
    server.scorer = lambda request: (next(answers), {})
    ran = bench("--concurrency", 1, "--total", 2, "--rewards", "clip,ocr")
    assert ran.code == 3
    (run,) = ran.runs
    assert (run["successful_requests"], run["failed_requests"]) == (1, 1)
    assert run["reward_failures"] == {"clip": 1}
    assert run["transport_errors"] == {}
    assert "items without a score of clip: 1" in ran.out


def test_short_answer():
    """An answer with another number of results than items is no answer."""
    result = Result(Point(("clip",), 1, 2))
    assert not take_answer(result, b'{"results": [{"clip": {"clip": 1}}]}')
    assert result.transport_errors == {"InvalidAnswer": 1}


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=60))
def test_percentiles(values):
    """Percentiles interpolate linearly, as numpy's do."""
    found = percentiles(values)
    for percent in PERCENTILES:
        assert found[percent] == pytest.approx(numpy.percentile(values, percent), rel=1e-9, abs=1e-9)
    assert found[100] == max(values)


def test_percentiles_of_nothing():
    """Without a successful request there is no percentile."""
    assert all(math.isnan(value) for value in percentiles([]).values())


def test_unreachable(bench):
    """A service that does not answer is exit code 1."""
    with FakeRewardServer() as stopped:
        url = stopped.url
    ran = bench("--concurrency", 1, url=url)
    assert (ran.code, ran.out) == (1, "")
    assert url in ran.err


def test_reward_not_offered(bench, server):
    """A reward that the service does not offer is exit code 1, before anything is sent."""
    ran = bench("--concurrency", 1, "--rewards", "clip,hpsv2")
    assert ran.code == 1
    assert "does not offer hpsv2; it offers clip, ocr" in ran.err
    assert not server.posts


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--concurrency"),
        (["--concurrency", 1, "--sweep", 1, 2], "not allowed"),
        (["--concurrency", 0], "'0' is not a number of at least 1"),
        (["--concurrency", 1, "--image", "nowhere.png"], "nowhere.png"),
        (["--concurrency", 1, "--timeout", "soon"], "nor none"),
        (["--concurrency", 1, "--plot", "a.txt"], ".png"),
        (["--concurrency", 1, "--output", "nowhere/a.json"], "create it"),
        (["--concurrency", 1, "--rewards", ","], "names no reward"),
    ],
)
def test_usage(bench, server, options, says):
    """Wrong usage, and a picture that is not there, are exit code 2."""
    ran = bench(*options)
    assert ran.code == 2
    assert says in ran.err
    assert not server.posts


def test_plot(bench, tmp_path):
    """--plot draws a line per set of rewards."""
    path = tmp_path / "plot.png"
    assert (
        bench("--sweep", 1, 2, "--total", 4, "--rewards", "clip,ocr", "--per-reward-isolated", "--plot", path).code == 0
    )
    colours = {colour for _, colour in Image.open(path).convert("RGB").getcolors(2**24)}
    # matplotlib's first two line colours.
    assert {(31, 119, 180), (255, 127, 14)} <= colours


def test_plot_of_failures(bench, server, tmp_path):
    """A plot of a run in which everything failed is empty, not an error."""
    server.faults += [Fault(status=500)] * 4
    path = tmp_path / "plot.svg"
    assert bench("--concurrency", 1, "--total", 4, "--plot", path).code == 3
    assert path.read_text().startswith("<?xml")


def test_interrupted(server):
    """Ctrl-C ends with exit code 130 and reports the levels that were complete."""
    server.faults += [Fault()] * 4 + [Fault(hang=True)] * 2
    command = [sys.executable, str(SCRIPT), "--url", server.url, "--sweep", "1", "2", "--total", "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        server.wait_for(lambda s: len(s.posts) == 6)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert [run["concurrency"] for run in json.loads(out.splitlines()[-1])["runs"]] == [1]


def test_script(server):
    """The script is the same command."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--url", server.url, "--concurrency", "2", "--total", "5"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["runs"][0]["successful_requests"] == 5


async def test_real_service(bench):
    """Against the real gateway every request succeeds, and the scores are those of the pictures."""
    config = 'rewards: [{name: mean, scorer: "reward_service.testing.scorers:MeanColour", num_gpus: 0}]'
    async with local_service(config) as service:
        ran = await asyncio.to_thread(
            bench, "--sweep", 1, 4, "--total", 8, "--rewards", "mean", "--batch-size", 2, url=service.url
        )
    assert ran.code == 0, ran.err
    assert [run["successful_requests"] for run in ran.runs] == [8, 8]
