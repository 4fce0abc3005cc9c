"""The summary of a run for people: a table on the terminal, a PNG, or one self-contained HTML page."""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Mapping
from dataclasses import astuple
from html import escape
from pathlib import Path

from PIL import ImageOps
from rich.console import Group, RenderableType
from rich.markup import escape as plain
from rich.table import Table

from reward_service.errors import ConfigError
from reward_service.offline.histograms import histograms_png
from reward_service.offline.items import RowProblem, decoded, media_bytes, shown_picture
from reward_service.offline.rows import Columns, Values
from reward_service.offline.tally import Metric, Tally

HEADINGS = ("sub-metric", "count", "failed", "mean", "std", "min", "25 %", "median", "75 %", "max")
_SHOWN_MESSAGES = 3
_THUMBNAIL = (180, 180)
_PROMPT_CHARS = 160
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;
  padding: 0 1rem; color: #222 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #ddd }
th:first-child, td:first-child { text-align: left }
img.plot { max-width: 100% }
.strip { display: flex; flex-wrap: wrap; gap: .8rem }
figure { margin: 0; width: 180px }
figure img { max-width: 180px; max-height: 180px; display: block }
figcaption { font-size: 12px; overflow-wrap: anywhere }
.bad { color: #a33 }
"""


def check_summary(path: Path, source: Path) -> None:
    """Raise ConfigError when a summary cannot be written to *path*."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError(f"summary {path}: plots need matplotlib; pip install 'reward-service[plot]'")
    if path.suffix.lower() not in ("", ".html", ".png"):
        raise ConfigError(f"summary {path}: give a folder, or a file that ends in .html or .png")
    folder = path.parent if path.suffix else path
    if not path.parent.is_dir():
        raise ConfigError(f"summary {path}: the folder {path.parent} does not exist; create it")
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"summary {path} is inside the scored folder, where it would count as a picture; put it elsewhere"
        )


def summary_table(tally: Tally) -> RenderableType:
    """The statistics of every sub-metric, and the most frequent errors."""
    table = Table(HEADINGS[0])
    for heading in HEADINGS[1:]:
        table.add_column(heading, justify="right")
    for row in _lines(tally):
        table.add_row(*map(plain, row))
    parts: list[RenderableType] = [table]
    for reward, messages in tally.messages.items():
        parts.append(f"[red]{plain(reward)}: {tally.failures[reward]:,} of {tally.rows:,} rows failed[/red]")
        parts += [f"  {count:,} × {plain(text)}" for text, count in messages.most_common(_SHOWN_MESSAGES)]
    return Group(*parts)


def extreme_rows(tally: Tally) -> set[int]:
    """The rows that a page shows."""
    return {
        row
        for metrics in tally.metrics.values()
        for metric in metrics.values()
        for _, row in (*metric.lowest, *metric.highest)
    }


def write_summary(path: Path, tally: Tally, rows: Mapping[int, Values], columns: Columns, base: Path) -> list[Path]:
    """Write the page, the PNG, or both into a folder; returns what was written."""
    png = histograms_png(tally)
    if path.suffix.lower() == ".png":
        path.write_bytes(png)
        return [path]
    page = _Page(tally, rows, columns, base).html(png)
    if path.suffix.lower() == ".html":
        path.write_text(page, encoding="utf-8")
        return [path]
    path.mkdir(exist_ok=True)
    html, plot = path / "summary.html", path / "histograms.png"
    html.write_text(page, encoding="utf-8")
    plot.write_bytes(png)
    return [html, plot]


def _lines(tally: Tally) -> list[tuple[str, ...]]:
    lines = []
    for reward, metrics in tally.metrics.items():
        for name, metric in metrics.items():
            count, failed, *numbers = astuple(metric.stats(tally.rows))
            lines.append((f"{reward}.{name}", f"{count:,}", f"{failed:,}", *map(_number, numbers)))
        if not metrics:
            lines.append((reward, "0", f"{tally.rows:,}", *["–"] * 7))
    return lines


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.4g}"


class _Page:
    def __init__(self, tally: Tally, rows: Mapping[int, Values], columns: Columns, base: Path) -> None:
        self._tally = tally
        self._rows = rows
        self._columns = columns
        self._base = base
        self._thumbnails: dict[int, str] = {}

    def html(self, png: bytes) -> str:
        tally = self._tally
        head = "".join(f"<th>{escape(heading)}</th>" for heading in HEADINGS)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>" for line in _lines(tally))
        sections = [
            self._section(f"{reward}.{name}", metric)
            for reward, metrics in tally.metrics.items()
            for name, metric in metrics.items()
        ]
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Scores</title>'
            f"<style>{_STYLE}</style></head><body>\n<h1>Scores of {tally.rows:,} rows</h1>\n"
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>\n{self._errors()}"
            f'<h2>Histograms</h2><img class="plot" alt="histograms" src="{_data_url(png, "png")}">\n'
            f"{''.join(sections)}</body></html>\n"
        )

    def _errors(self) -> str:
        items = [
            f'<li class="bad">{escape(reward)}, {count:,} ×: {escape(text)}</li>'
            for reward, messages in self._tally.messages.items()
            for text, count in messages.most_common(_SHOWN_MESSAGES)
        ]
        return f"<h2>Failures</h2><p>{self._tally.failed_rows:,} rows.</p><ul>{''.join(items)}</ul>\n" * bool(items)

    def _section(self, name: str, metric: Metric) -> str:
        lowest = "".join(self._figure(value, row) for value, row in metric.lowest)
        highest = "".join(self._figure(value, row) for value, row in metric.highest)
        return (
            f"<h2>{escape(name)}</h2><h3>Highest</h3><div class=strip>{highest}</div>"
            f"<h3>Lowest</h3><div class=strip>{lowest}</div>\n"
        )

    def _figure(self, value: float, row: int) -> str:
        values = self._rows.get(row, {})
        if row not in self._thumbnails:
            self._thumbnails[row] = _thumbnail(shown_picture(values, self._columns.image), self._base)
        prompt = str(values.get(self._columns.prompt or "", ""))[:_PROMPT_CHARS]
        caption = f"<b>{value:.4g}</b> · row {row}<br>{escape(prompt)}"
        return f"<figure>{self._thumbnails[row]}<figcaption>{caption}</figcaption></figure>"


def _thumbnail(cell: object, base: Path) -> str:
    if cell is None or cell == "":
        return "<p>no picture</p>"
    try:
        image = ImageOps.exif_transpose(decoded(media_bytes(cell, base))).convert("RGB")
    except RowProblem as problem:
        return f'<p class="bad">{escape(str(problem))}</p>'
    image.thumbnail(_THUMBNAIL)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return f'<img alt="" src="{_data_url(file.getvalue(), "jpeg")}">'


def _data_url(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
