"""The statistics of a run, its histograms and its page."""

from __future__ import annotations

import base64
import io
import re
import statistics
from html import unescape

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from reward_service.offline.tally import Metric

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@given(values, st.integers(0, 10))
def test_statistics(numbers, failed):
    """Mean, spread, quartiles and extremes are those of the numbers; what is missing is counted as failed."""
    metric = Metric()
    for row, number in enumerate(numbers):
        metric.add(number, row)
    stats = metric.stats(len(numbers) + failed)
    assert (stats.count, stats.failed) == (len(numbers), failed)
    assert stats.mean == pytest.approx(statistics.fmean(numbers), abs=1e-6)
    assert stats.std == pytest.approx(statistics.pstdev(numbers), abs=1e-4)
    assert stats.median == pytest.approx(statistics.median(numbers), abs=1e-6)
    assert (stats.minimum, stats.maximum) == (min(numbers), max(numbers))
    assert stats.minimum <= stats.quarter <= stats.median <= stats.three_quarters <= stats.maximum


@given(values)
def test_extremes(numbers):
    """The lowest and highest six are kept with their rows, the earlier row first among equals."""
    metric = Metric()
    for row, number in enumerate(numbers):
        metric.add(number, row)
    pairs = [(number, row) for row, number in enumerate(numbers)]
    assert metric.lowest == sorted(pairs, key=lambda pair: (pair[0], pair[1]))[:6]
    assert metric.highest == sorted(pairs, key=lambda pair: (-pair[0], pair[1]))[:6]


def test_table(score, table, tmp_path):
    """The table on the terminal has a line per sub-metric."""
    ran = score(table, tmp_path / "out.jsonl", rewards="clip,ocr")
    (line,) = (line for line in ran.out.splitlines() if line.startswith("│ clip.clip"))
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["clip.clip", "10", "0", "5.5", "2.872", "1", "3.25", "5.5", "7.75", "10"]
    assert "ocr.ocr" in ran.out


def test_page(score, table, tmp_path, write, read):
    """The page stands alone: statistics, histograms, extremes with thumbnails, prompts shown as text."""
    rows = read(table)
    rows[9]["prompt"] = "<script>alert('1')</script>"
    write(table, rows)
    (tmp_path / "pics" / "2.png").unlink()
    page = tmp_path / "page.html"
    assert score(table, tmp_path / "out.jsonl", "--summary", page).code == 3
    html = page.read_text()
    assert "<script" not in html
    assert "<script>alert('1')</script>" in unescape(html)
    assert not re.findall(r'(?:src|href)="(?!data:)', html)
    images = [Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall(r"base64,([^\"]+)", html)]
    assert images[0].format == "PNG"
    highest = html.split("Highest")[1].split("Lowest")[0]
    first = Image.open(io.BytesIO(base64.b64decode(re.search(r"base64,([^\"]+)", highest)[1])))
    assert first.convert("RGB").getpixel((4, 4)) == pytest.approx((225, 0, 90), abs=6)
    assert "<b>27</b> · row 9" in highest
    assert "2.png: No such file or directory" in html


@pytest.mark.parametrize("name", ["plot.png", "folder"])
def test_histograms(score, table, tmp_path, name):
    """A .png is the histograms alone; a folder gets them and the page."""
    path = tmp_path / name
    ran = score(table, tmp_path / "out.jsonl", "--summary", path, rewards="clip,ocr")
    assert ran.code == 0
    plot = path if path.suffix else path / "histograms.png"
    image = Image.open(plot).convert("RGB")
    # Two plots beside each other, each with bars.
    assert image.width > 2 * 400
    for half in (image.crop((0, 0, image.width // 2, image.height)), image.crop((image.width // 2, 0, *image.size))):
        blue = sum(count for count, (r, _, b) in half.getcolors(2**24) if b > 150 and r < 100)
        assert blue > 1000
    assert str(plot) in ran.err
    if not path.suffix:
        assert (path / "summary.html").read_text().startswith("<!doctype html>")


def test_nothing_scored(score, pictures, tmp_path, write):
    """A run in which everything failed has a summary too."""
    source = write(tmp_path / "in.jsonl", [{"prompt": "a", "image": "gone.png"}])
    ran = score(source, tmp_path / "out.jsonl", "--summary", tmp_path / "s.html")
    assert ran.code == 3
    assert "gone.png: No such file" in (tmp_path / "s.html").read_text()


def test_summary_among_the_pictures(score, pictures, tmp_path, server):
    """A summary inside the scored folder would be a picture of the next run, so it is refused."""
    ran = score(pictures, tmp_path / "out.jsonl", "--summary", pictures / "s.png")
    assert ran.code == 2
    assert "inside the scored folder" in ran.err
    assert not server.posts
