"""The journal beside the output: every finished row, appended batch by batch, so that a run can be resumed.

The first line says what was asked, each following one is a row: its index, its fingerprint, its scores and
errors. A batch is one ``write``, so a killed process leaves complete lines and at most one torn at the end.
"""

from __future__ import annotations

import fcntl
import os
import threading
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from reward_service.errors import ConfigError

_UNKNOWN = -1
_VERSION = 1
_HEAD = b'{"journal":1,'


@dataclass(frozen=True)
class Entry:
    """A finished row. scores: ``{reward: {sub_metric: float | None}}``; errors: ``{reward: message}``."""

    index: int
    fingerprint: str
    scores: Mapping[str, Mapping[str, float | None]]
    errors: Mapping[str, str]

    def line(self) -> bytes:
        """The entry as its line in the file."""
        fields = {"row": self.index, "fp": self.fingerprint, "scores": self.scores, "errors": self.errors}
        return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


class Journal:
    """An open journal; one process at a time. Memory: eight bytes per row.

    resume: keep what is there, if *header* equals that of the file; otherwise start anew. retry_failed: rows
    with an error count as not done. Raises ConfigError when the file belongs to another question, to another
    running process, or is no journal.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], *, resume: bool, retry_failed: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._offsets = array("q")
        self._retry: set[int] = set()
        self._file = path.open("ab", buffering=0)
        self._reader = path.open("rb")
        try:
            self._take_lock()
            if not resume:
                self._file.truncate(0)
            self._end = self._load(dict(header), retry_failed)
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> int:
        """One more than the highest index on record."""
        return len(self._offsets)

    def is_done(self, index: int) -> bool:
        """Whether row *index* needs no scoring."""
        known = index < len(self._offsets) and self._offsets[index] != _UNKNOWN
        return known and index not in self._retry

    def get(self, index: int) -> Entry | None:
        """The newest entry of row *index*."""
        offset = self._offsets[index] if index < len(self._offsets) else _UNKNOWN
        if offset == _UNKNOWN:
            return None
        with self._lock:
            self._reader.seek(offset)
            return _entry(self._reader.readline())

    def entries(self) -> Iterator[Entry]:
        """The newest entry of every recorded row, in the order of the rows."""
        with self.path.open("rb") as reader:
            for offset in self._offsets:
                if offset != _UNKNOWN:
                    reader.seek(offset)
                    yield _entry(reader.readline())

    def record(self, entries: Sequence[Entry]) -> None:
        """Append finished rows; they survive the end of this process from here on."""
        lines = [entry.line() for entry in entries]
        with self._lock:
            self._append(b"".join(lines))
            for entry, line in zip(entries, lines, strict=True):
                self._remember(entry.index, self._end)
                self._retry.discard(entry.index)
                self._end += len(line)

    def close(self) -> None:
        """Release the file for the next process."""
        self._reader.close()
        self._file.close()

    def _append(self, data: bytes) -> None:
        try:
            _write_all(self._file.fileno(), data)
        except OSError:
            # A full disk: another thread must not write behind a torn line.
            self._file.truncate(self._end)
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self.path}: another process is writing it; wait for it, or choose another output"
            ) from error

    def _load(self, header: dict[str, Any], retry_failed: bool) -> int:
        """Index the file and cut off a torn last line; returns where the next line goes."""
        with self.path.open("rb") as reader:
            first = reader.readline()
            if not first or (first.startswith(_HEAD) and not reader.peek(1)):
                # Nothing is on record yet, so any question may be asked.
                self._file.truncate(0)
                line = orjson.dumps({"journal": _VERSION, **header}, option=orjson.OPT_APPEND_NEWLINE)
                _write_all(self._file.fileno(), line)
                return len(line)
            self._check_header(first, header)
            end = len(first)
            for line in reader:
                if not line.endswith(b"\n"):
                    break
                entry = self._checked_entry(line)
                self._remember(entry.index, end)
                if retry_failed:
                    (self._retry.add if entry.errors else self._retry.discard)(entry.index)
                end += len(line)
        self._file.truncate(end)
        return end

    def _check_header(self, line: bytes, header: dict[str, Any]) -> None:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict) or not line.startswith(_HEAD):
            raise ConfigError(f"{self.path}: not a journal of this program; move it away")
        differing = [name for name in header if found.get(name) != header[name]]
        if differing:
            name = differing[0]
            raise ConfigError(
                f"{self.path}: it was written with {name} {found.get(name)!r}, now it is {header[name]!r}; "
                "repeat the first command, choose another output, or start over with --no-resume"
            )

    def _checked_entry(self, line: bytes) -> Entry:
        try:
            return _entry(line)
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{self.path}: a line is damaged ({line[:60]!r}…); start over with --no-resume"
            ) from error

    def _remember(self, index: int, offset: int) -> None:
        missing = index + 1 - len(self._offsets)
        if missing > 0:
            self._offsets.extend([_UNKNOWN] * missing)
        self._offsets[index] = offset


def _entry(line: bytes) -> Entry:
    fields = orjson.loads(line)
    return Entry(fields["row"], fields["fp"], fields["scores"], fields["errors"])


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
