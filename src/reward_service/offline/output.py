"""The output: every input row in its order, with the scores of the journal; complete, or not there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from reward_service.errors import ConfigError
from reward_service.offline.journal import Entry, Journal
from reward_service.offline.parquet import ParquetWriter
from reward_service.offline.rows import Source, Survey, Values, to_json
from reward_service.offline.tally import Tally

ENDINGS = (".jsonl", ".parquet")


class Writer(Protocol):
    """Takes rows one by one."""

    def write(self, values: Values) -> None:
        """Add a row."""

    def close(self) -> None:
        """Complete the file."""


class JsonlWriter:
    """One JSON object per line."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, values: Values) -> None:
        """See `Writer`."""
        self._file.write(to_json(values) + b"\n")

    def close(self) -> None:
        """See `Writer`."""
        self._file.close()


def write_output(
    path: Path, source: Source, survey: Survey, journal: Journal, tally: Tally, *, keep: Collection[int] = ()
) -> dict[int, Values]:
    """Write *path*, JSONL or Parquet by its ending; returns the input rows whose index is in *keep*."""
    columns = tally.columns()
    kept: dict[int, Values] = {}
    with _replacing(path) as draft:
        writer = _writer(path, draft, survey, source.schema, columns)
        try:
            for index, values in enumerate(source.rows()):
                entry = journal.get(index)
                if entry is None:
                    raise ConfigError(f"{source.path}: it grew while it was scored; run the same command again")
                if index in keep:
                    kept[index] = values
                writer.write({**values, **_scores(entry, columns)})
        finally:
            writer.close()
    return kept


def _writer(path: Path, draft: Path, survey: Survey, schema: Any, columns: Mapping[str, str]) -> Writer:
    if path.suffix.lower() == ".parquet":
        return ParquetWriter(draft, survey.kinds, schema, columns)
    return JsonlWriter(draft)


def _scores(entry: Entry, columns: Mapping[str, str]) -> Values:
    found: Values = dict.fromkeys(columns)
    for reward, metrics in entry.scores.items():
        found.update({f"{reward}.{name}": value for name, value in metrics.items()})
    for reward, message in entry.errors.items():
        found[f"{reward}.error"] = message
    return found


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file beside *path* that takes its place once it is complete."""
    draft = path.with_name(f".{path.name}.part")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
