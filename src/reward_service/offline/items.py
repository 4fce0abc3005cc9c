"""From a row to the request that is sent for it; what is wrong with a row is that row's error."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from PIL import Image

from reward_service.client import RewardRequest
from reward_service.offline.rows import Columns, Values

ORIGINAL = "original"


class RowProblem(ValueError):
    """A row that cannot be sent; the message becomes its error."""


@dataclass(frozen=True)
class Recipe:
    """How rows become requests. reencode: decode pictures here, so that the client encodes them anew."""

    columns: Columns
    base: Path
    rewards: tuple[str, ...]
    reencode: bool = False

    def request(self, values: Values) -> RewardRequest:
        """The request for one row, files read; raises RowProblem."""
        prompt = self._prompt(values)
        pictures = self._pictures(values)
        video = self._video(values)
        if not pictures and video is None:
            raise RowProblem(f"no picture in column {self.columns.image!r}")
        turns = pictures or [None]
        return RewardRequest(
            history=[(prompt, picture) for picture in turns],
            required_rewards=self.rewards,
            metadata=self._metadata(values),
            videos=None if video is None else [*[None] * (len(turns) - 1), video],
        )

    def _prompt(self, values: Values) -> str:
        prompt = values.get(self.columns.prompt or "")
        if prompt is None:
            raise RowProblem(f"no prompt in column {self.columns.prompt!r}")
        return str(prompt)

    def _pictures(self, values: Values) -> list[Any]:
        cell = values.get(self.columns.image or "")
        cells = cell if isinstance(cell, list) else [cell]
        pictures = []
        for each in cells:
            if each is not None and each != "":
                data = media_bytes(each, self.base)
                pictures.append(decoded(data) if self.reencode else data)
        return pictures

    def _video(self, values: Values) -> bytes | None:
        cell = values.get(self.columns.video or "")
        return None if cell is None or cell == "" else media_bytes(cell, self.base)

    def _metadata(self, values: Values) -> Mapping[str, Any] | None:
        name = self.columns.metadata
        cell = values.get(name or "")
        if isinstance(cell, str) and cell.strip():
            try:
                cell = orjson.loads(cell)
            except orjson.JSONDecodeError as error:
                raise RowProblem(f"column {name!r} is not valid JSON: {error.msg}") from error
        if cell is None or cell == "":
            return None
        if not isinstance(cell, Mapping):
            raise RowProblem(f"column {name!r} must be a JSON object, not a {type(cell).__name__}")
        return cell


def media_bytes(cell: object, base: Path) -> bytes:
    """The encoded picture or video that *cell* is: bytes, a path from *base*, or a mapping with either."""
    if isinstance(cell, Mapping):
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, str) and "://" in cell:
        raise RowProblem(f"{cell!r} is a URL; download the files and give their paths")
    if isinstance(cell, bytes):
        data = cell
    elif isinstance(cell, str):
        data = _read(base, cell)
    else:
        raise RowProblem(f"a picture or video is a path or encoded bytes, not a {type(cell).__name__}")
    if not data:
        raise RowProblem("the file is empty" if isinstance(cell, bytes) else f"{cell}: the file is empty")
    return data


def decoded(data: bytes) -> Image.Image:
    """The picture in *data*, pixels loaded; raises RowProblem."""
    try:
        image = Image.open(io.BytesIO(data))
        image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise RowProblem(f"cannot decode the picture: {error}") from error
    return image


def _read(base: Path, name: str) -> bytes:
    try:
        return (base / name).read_bytes()
    except OSError as error:
        raise RowProblem(f"{name}: {error.strerror}") from error
    except ValueError as error:
        raise RowProblem(f"{name!r} is not a path: {error}") from error


def shown_picture(values: Values, column: str | None) -> object:
    """What *values* shows in a report: the last turn's picture, unread; None without one."""
    cell = values.get(column or "")
    if isinstance(cell, Sequence) and not isinstance(cell, (str, bytes)):
        return cell[-1] if cell else None
    return cell
