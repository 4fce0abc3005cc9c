"""A run that ends early goes on where it was; a run over something else is refused."""

from __future__ import annotations

import signal
import subprocess
import sys
import tracemalloc
from collections import Counter

import pytest
from PIL import Image

from reward_service.client import ScoreResponse
from reward_service.offline import ScoreJob, prepare
from reward_service.testing.fake_server import FakeRewardServer, Fault


def sent(server: FakeRewardServer) -> Counter[str]:
    """How often each prompt arrived."""
    return Counter(text for post in server.posts for text in post.texts)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed(score, table, tmp_path, server, read, how):
    """Killed or interrupted, a run loses at most the batch in flight; the same command does the rest."""
    out = tmp_path / "out.jsonl"
    server.faults += [Fault(), Fault(), Fault(hang=True)]
    command = [
        sys.executable, "-m", "reward_service", "score", str(table), "-o", str(out), "--rewards", "clip",
        "--url", server.url, "--batch-size", "2", "--concurrency", "1",
    ]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        server.wait_for(lambda s: len(s.posts) == 3)
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
    assert process.returncode == (-9 if how == signal.SIGKILL else 130)
    assert "Traceback" not in err
    assert not out.exists()
    ran = score(table, out, "--batch-size", 2)
    assert ran.code == 0
    assert "4 of 10 rows are scored already" in ran.err
    assert [row["clip.clip"] for row in read(out)] == [float(i + 1) for i in range(10)]
    assert {len(text): times for text, times in sent(server).items() if times > 1} == {5: 2, 6: 2}


def test_failed_service(score, table, tmp_path, server, read):
    """What other requests had brought when the service failed is not asked for again."""
    out = tmp_path / "out.jsonl"
    server.faults += [Fault(), Fault(status=401)]
    assert score(table, out, "--batch-size", 5, "--concurrency", 1).code == 1
    assert score(table, out, "--batch-size", 5).code == 0
    assert {len(text) for text, times in sent(server).items() if times == 1} == {1, 2, 3, 4, 5}
    assert len(read(out)) == 10


def test_torn_line(score, table, tmp_path, server, read):
    """A last line that was cut by a crash costs that row only."""
    out = tmp_path / "out.jsonl"
    assert score(table, out).code == 0
    journal = tmp_path / "out.jsonl.journal"
    data = journal.read_bytes()
    journal.write_bytes(data[:-20])
    assert score(table, out).code == 0
    assert sent(server) == {"x" * (i + 1): 1 + (i == 9) for i in range(10)}
    assert journal.read_bytes() == data
    assert len(read(out)) == 10


def test_finished_run_needs_no_service(score, table, tmp_path, server):
    """Repeating a finished command gives the same output without a single request."""
    out = tmp_path / "out.jsonl"
    assert score(table, out).code == 0
    first = out.read_bytes()
    out.unlink()
    with FakeRewardServer() as stopped:
        url = stopped.url
    assert score(table, out, url=url).code == 0
    assert out.read_bytes() == first
    assert len(server.posts) == 1


def test_grown_input(score, table, tmp_path, server, write, read):
    """Rows that were appended to the input are scored, and only they."""
    out = tmp_path / "out.parquet"
    rows = read(table)
    write(table, rows[:7])
    assert score(table, out).code == 0
    write(table, rows)
    assert score(table, out).code == 0
    assert server.posts[1].texts == [row["prompt"] for row in rows[7:]]
    assert [row["clip.clip"] for row in read(out)] == [float(i + 1) for i in range(10)]


@pytest.mark.parametrize("change", ["value", "order", "fewer"])
def test_changed_input(score, table, tmp_path, server, write, read, change):
    """An input whose scored rows have changed is refused; --no-resume scores it from the start."""
    out = tmp_path / "out.jsonl"
    assert score(table, out).code == 0
    rows = read(table)
    if change == "value":
        rows[4]["id"] = "another"
    write(table, {"value": rows, "order": rows[::-1], "fewer": rows[:-1]}[change])
    ran = score(table, out)
    assert ran.code == 2
    assert str(table) in ran.err
    assert "--no-resume" in ran.err
    assert len(server.posts) == 1
    assert score(table, out, "--no-resume").code == 0
    assert [row["clip.clip"] for row in read(out)] == [float(len(row["prompt"])) for row in read(table)]
    assert len(server.posts) == 2


def test_other_rewards(score, table, tmp_path):
    """An output of other rewards is not continued."""
    out = tmp_path / "out.jsonl"
    assert score(table, out).code == 0
    ran = score(table, out, rewards="clip,ocr")
    assert ran.code == 2
    assert "it was written with rewards ['clip'], now it is ['clip', 'ocr']" in ran.err


def test_foreign_files(score, table, tmp_path):
    """An output of another origin, and a journal that is none, are not touched."""
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    assert "exists without its journal" in score(table, out).err
    assert out.read_text() == "mine\n"
    journal = tmp_path / "b.jsonl.journal"
    journal.write_text("mine")
    assert "not a journal" in score(table, tmp_path / "b.jsonl").err
    assert journal.read_text() == "mine"


def test_two_at_once(score, table, tmp_path, server):
    """A second process on the same output is refused."""
    out = tmp_path / "out.jsonl"
    with prepare(ScoreJob(table, out, ("clip",))):
        ran = score(table, out)
    assert ran.code == 2
    assert "another process is writing it" in ran.err
    assert score(table, out).code == 0


def test_retry_failed(score, table, tmp_path, server, read):
    """--retry-failed scores the rows with an error again, and no others."""
    out = tmp_path / "out.jsonl"
    picture = tmp_path / "pics" / "3.png"
    picture.rename(tmp_path / "away.png")
    assert score(table, out).code == 3
    (tmp_path / "away.png").rename(picture)
    assert score(table, out).code == 3
    assert len(server.posts) == 1
    assert score(table, out, "--retry-failed").code == 0
    assert server.posts[1].texts == ["xxxx"]
    assert [row["clip.clip"] for row in read(out)] == [float(i + 1) for i in range(10)]
    assert score(table, out, "--retry-failed").code == 0
    assert len(server.posts) == 2


class Echo:
    """A client that scores at once, so that only this program's own memory is measured."""

    def score_detailed(self, requests):
        return ScoreResponse([{"clip": {"clip": 1.0}} for _ in requests], [{} for _ in requests])


def test_memory_is_bounded(tmp_path, write):
    """Eighty megabytes of rows are scored and written in a tenth of that memory."""
    Image.new("RGB", (1, 1)).save(tmp_path / "a.png")
    with (tmp_path / "in.jsonl").open("w") as file:
        line = '{"prompt": "%s", "image": "a.png"}\n' % ("x" * 8000)
        file.writelines(line for _ in range(10_000))
    tracemalloc.start()
    try:
        with prepare(ScoreJob(tmp_path / "in.jsonl", tmp_path / "out.jsonl", ("clip",))) as prepared:
            prepared.score(Echo(), lambda rows, failed: None)
            prepared.write(prepared.tally())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8_000_000
    assert (tmp_path / "out.jsonl").stat().st_size > 80_000_000
