"""Rows of a JSONL or CSV file, one at a time, and what a survey of all of them finds."""

from __future__ import annotations

import base64
import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import orjson

from reward_service.errors import ConfigError

Values = dict[str, Any]

PROMPT_NAMES = ("prompt", "caption", "text")
IMAGE_NAMES = ("image", "image_path", "file_name")
_JSON = orjson.OPT_NON_STR_KEYS
# Longer than any prompt, and small enough to notice a quote that never ends.
_MAX_CSV_CELL = 2**24


class Source(Protocol):
    """An input that can be read several times."""

    @property
    def path(self) -> Path:
        """What the user named, or the table found in that folder."""

    @property
    def base(self) -> Path:
        """Where relative paths of pictures and videos start."""

    @property
    def schema(self) -> Any:
        """The Arrow schema; None for formats without one."""

    def rows(self) -> Iterator[Values]:
        """All rows from the first; raises ConfigError, with the line, for what cannot be read."""


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; None is looked for among the usual names (see `resolve`)."""

    prompt: str | None = None
    image: str | None = None
    video: str | None = None
    metadata: str | None = None

    def resolve(self, known: Mapping[str, str], path: Path) -> Columns:
        """The same with every name settled; raises ConfigError for a column that *known* lacks."""
        prompt = self.prompt or _first(PROMPT_NAMES, known)
        image = self.image or _first(IMAGE_NAMES, known)
        if prompt is None:
            raise ConfigError(_no_column("prompt", "--prompt-column", PROMPT_NAMES, known, path))
        if image is None and self.video is None:
            raise ConfigError(_no_column("image", "--image-column or --video-column", IMAGE_NAMES, known, path))
        settled = Columns(prompt, image, self.video, self.metadata)
        for option, name in vars(settled).items():
            if name is not None and name not in known:
                raise ConfigError(f"{path}: no column {name!r} for --{option}-column; it has {_listed(known)}")
        return settled


@dataclass
class Survey:
    """What reading every row once tells: how many, and each column's kind of value."""

    count: int = 0
    kinds: dict[str, str] = field(default_factory=dict)

    def add(self, values: Values) -> None:
        """Take one row into account."""
        self.count += 1
        for name, value in values.items():
            kind = kind_of(value)
            known = self.kinds.get(name, "null")
            self.kinds[name] = known if kind == known else _merged(known, kind)


def open_table(path: Path) -> Source:
    """The JSONL or CSV file at *path*, told by its ending; Parquet and folders are elsewhere."""
    return CsvSource(path) if path.suffix.lower() == ".csv" else JsonlSource(path)


@dataclass(frozen=True)
class JsonlSource:
    """One JSON object per line; empty lines are skipped."""

    path: Path
    schema: Any = None

    @property
    def base(self) -> Path:
        """The file's folder."""
        return self.path.parent

    def rows(self) -> Iterator[Values]:
        """See `Source.rows`."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield self._parsed(line, number)

    def _parsed(self, line: bytes, number: int) -> Values:
        where = f"{self.path}:{number}"
        try:
            values = orjson.loads(line.removeprefix(b"\xef\xbb\xbf"))
        except orjson.JSONDecodeError as error:
            raise ConfigError(f"{where}: not valid JSON ({error.msg}); write one JSON object per line") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: a {type(values).__name__}, not an object; write one JSON object per line")
        return values


@dataclass(frozen=True)
class CsvSource:
    """A comma-separated file in UTF-8 whose first line names the columns; every value is text."""

    path: Path
    schema: Any = None

    @property
    def base(self) -> Path:
        """The file's folder."""
        return self.path.parent

    def rows(self) -> Iterator[Values]:
        """See `Source.rows`."""
        csv.field_size_limit(_MAX_CSV_CELL)
        with self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            try:
                for values in reader:
                    if None in values:
                        raise ConfigError(
                            f"{self.path}:{reader.line_num}: more cells than the first line has columns; "
                            "put quotes around text that has commas"
                        )
                    yield values
            except (csv.Error, UnicodeDecodeError) as error:
                where = f"{self.path}:{reader.line_num + 1}"
                raise ConfigError(f"{where}: not CSV in UTF-8 ({error}); correct this line") from error


def kind_of(value: object) -> str:
    """``null``, ``bool``, ``int``, ``float``, ``text``, or ``json`` for everything else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(2**63) <= value < 2**63 else "json"
    if isinstance(value, float):
        return "float"
    return "text" if isinstance(value, str) else "json"


def _merged(one: str, other: str) -> str:
    kinds = {one, other} - {"null"}
    if len(kinds) == 1:
        return kinds.pop()
    return "float" if kinds == {"int", "float"} else "json"


def to_json(values: Any, option: int = 0) -> bytes:
    """*values* as JSON; bytes become base64, NaN null, other foreign types their text."""
    return orjson.dumps(values, default=_plain, option=_JSON | option)


def fingerprint(values: Values) -> str:
    """Sixteen hex digits that change with any value of the row, not with the order of its columns."""
    return blake2b(to_json(values, orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _first(names: tuple[str, ...], known: Mapping[str, str]) -> str | None:
    return next(filter(known.__contains__, names), None)


def _no_column(what: str, option: str, names: tuple[str, ...], known: Mapping[str, str], path: Path) -> str:
    return f"{path}: no {what} column: none is named {', '.join(names)}. It has {_listed(known)}; choose with {option}"


def _listed(known: Mapping[str, str]) -> str:
    return f"the columns {', '.join(map(repr, known))}" if known else "no columns at all"
