"""Server-sent events, parsed from bytes in whatever pieces they arrive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its data lines joined by newlines, and its type ("" when the server names none)."""

    data: bytes
    type: str = ""


class EventParser:
    """Feed it bytes, get the events that are complete: https://html.spec.whatwg.org/multipage/server-sent-events.html

    Lines end with LF, CRLF or CR. Comments and fields other than `data` and `event` are skipped. ValueError when one
    event grows beyond *max_bytes*.
    """

    def __init__(self, max_bytes: int = 16 * 2**20) -> None:
        self._max_bytes = max_bytes
        self._rest = b""  # a line that has no end yet
        self._data: list[bytes] = []
        self._size = 0
        self._type = ""
        self._after_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that *chunk* completes."""
        if self._after_cr and chunk:  # the LF of a CRLF that was split between two chunks
            self._after_cr = False
            if chunk.startswith(b"\n"):
                chunk = chunk[1:]
        chunk = self._rest + chunk
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = chunk.split(b"\n")
        events: list[Event] = []
        for line in lines:
            self._line(line, events)
        self._check(self._size + len(self._rest))
        return events

    def finish(self) -> list[Event]:
        """The event that the end of the stream leaves unterminated. Some servers omit the last blank line."""
        events: list[Event] = []
        if self._rest:
            rest, self._rest = self._rest, b""
            self._line(rest, events)
        self._line(b"", events)
        return events

    def _line(self, line: bytes, events: list[Event]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if self._data:
                events.append(Event(b"\n".join(self._data), self._type))
            self._data, self._size, self._type = [], 0, ""
            return
        name, _, value = line.partition(b":")
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
            self._check(self._size)
        elif name == b"event":
            self._type = value.decode("utf-8", "replace")

    def _check(self, size: int) -> None:
        if size > self._max_bytes:
            raise ValueError(f"one server-sent event is larger than {self._max_bytes} bytes")
