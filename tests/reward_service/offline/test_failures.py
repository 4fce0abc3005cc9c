"""What goes wrong with a row stays with that row; what goes wrong with the service stops the run."""

from __future__ import annotations

import asyncio
import math

import pytest
from PIL import Image

from reward_service.testing.fake_server import FakeRewardServer, Fault
from reward_service.testing.local import local_service

REJECTING = """
server: {on_bad_item: reject}
rewards:
  - {name: mean, scorer: "reward_service.testing.scorers:MeanColour", num_gpus: 0}
  - {name: s, scorer: "reward_service.testing.scorers:Scripted", num_gpus: 0}
"""


def test_rows_that_cannot_be_sent(score, pictures, tmp_path, write, read, server):
    """A missing file, an empty one, a URL, a missing prompt: each is its row's error, and the rest is scored."""
    (pictures / "empty.png").touch()
    rows = [
        {"prompt": "good", "image": "0.png"},
        {"prompt": "gone", "image": "gone.png"},
        {"prompt": "empty", "image": "empty.png"},
        {"prompt": "far", "image": "https://example.org/a.png"},
        {"image": "1.png"},
        {"prompt": "none", "image": None},
        {"prompt": "meta", "image": "1.png", "meta": "{"},
        {"prompt": "number", "image": 7},
        {"prompt": "good too", "image": "2.png"},
    ]
    out = tmp_path / "out.jsonl"
    ran = score(write(pictures / "in.jsonl", rows), out, "--metadata-column", "meta", rewards="clip,ocr")
    assert ran.code == 3
    scored = read(out)
    assert [row["clip.clip"] for row in scored] == [4, None, None, None, None, None, None, None, 8]
    assert all(row["clip.error"] == row["ocr.error"] for row in scored)
    for row, part in zip(
        scored,
        [None, "gone.png: No such file", "the file is empty", "is a URL", "no prompt", "no picture", "not valid JSON",
         "a path or encoded bytes, not a int", None],
        strict=True,
    ):  # fmt: skip
        assert (row["clip.error"] is None) if part is None else part in row["clip.error"]
    assert server.posts[0].texts == ["good", "good too"]
    assert "7 of 9 rows failed" in ran.out


def test_undecodable_pictures_when_encoding_anew(score, pictures, tmp_path, write, read):
    """With --image-format a file that is no picture is an error of its row."""
    (pictures / "bad.png").write_bytes(b"not a picture")
    rows = [{"prompt": "bad", "image": "bad.png"}, {"prompt": "good", "image": "0.png"}]
    out = tmp_path / "out.jsonl"
    assert score(write(pictures / "in.jsonl", rows), out, "--image-format", "PNG").code == 3
    bad, good = read(out)
    assert "cannot decode the picture" in bad["clip.error"]
    assert good["clip.clip"] == 4


async def test_server_that_rejects_whole_requests(score, pictures, tmp_path, write, read):
    """Where one bad item costs the whole request, the others are found and scored all the same."""
    (pictures / "bad.png").write_bytes(b"not a picture")
    rows = [{"prompt": f"p{i}", "image": "bad.png" if i in (3, 4) else f"{i}.png"} for i in range(8)]
    source, out = write(pictures / "in.jsonl", rows), tmp_path / "out.jsonl"
    async with local_service(REJECTING) as service:
        ran = await asyncio.to_thread(score, source, out, url=service.url, rewards="mean")
    assert ran.code == 3
    scored = read(out)
    assert [row["mean.error"] is None for row in scored] == [i not in (3, 4) for i in range(8)]
    for i in (0, 7):
        grey = Image.open(pictures / f"{i}.png").convert("L").getpixel((0, 0))
        assert scored[i]["mean.mean"] == pytest.approx(grey, abs=1)


async def test_failing_rewards(score, pictures, tmp_path, write, read):
    """A reward that fails has a null and its error; the other reward of the row has its score."""
    rows = [{"prompt": prompt, "image": "0.png"} for prompt in ("fine", "raise", "nan", "empty")]
    source, out = write(pictures / "in.jsonl", rows), tmp_path / "out.jsonl"
    async with local_service(REJECTING) as service:
        ran = await asyncio.to_thread(score, source, out, url=service.url, rewards="mean,s")
    assert ran.code == 3
    scored = read(out)
    assert [row["s.value"] for row in scored] == [1.0, None, None, None]
    assert "asked to raise" in scored[1]["s.error"]
    assert "nan" in scored[2]["s.error"]
    assert scored[3]["s.error"]
    assert all(math.isfinite(row["mean.mean"]) and row["mean.error"] is None for row in scored)


def test_lost_service(score, table, tmp_path):
    """A service that cannot be reached is exit code 1, without a traceback."""
    with FakeRewardServer() as stopped:
        url = stopped.url
    ran = score(table, tmp_path / "out.jsonl", url=url)
    assert ran.code == 1
    assert "Check that the service runs" in ran.err
    assert "Traceback" not in ran.err


def test_refusal_that_is_not_an_items(score, table, tmp_path, server):
    """A refusal such as 401 stops the run after one request instead of failing every row."""
    server.faults += [Fault(status=401, body=b'{"detail": "who are you?"}')]
    ran = score(table, tmp_path / "out.jsonl", "--concurrency", 1, "--batch-size", 2)
    assert ran.code == 1
    assert "who are you?" in ran.err
    assert "run the same command again" in ran.err
    assert len(server.posts) == 1
