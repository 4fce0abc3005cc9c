"""Server-sent events survive any way of being cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.client.sse import Event, EventParser

DATA = st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n\0", codec="utf-8")), min_size=1, max_size=3)
NOISE = st.sampled_from(["", ": a comment", "id: 7", "retry: 100", "unknown", "event"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    text, events = draw(st.sampled_from(["", "\ufeff"])), []
    for lines in draw(st.lists(DATA, max_size=4)):
        kind = draw(st.sampled_from(["", "error", "delta"]))
        block = [*([f"event: {kind}"] if kind else []), draw(NOISE), *(f"data: {line}" for line in lines)]
        text += end.join(line for line in block if line) + end + end
        kind = "" if "event" in block else kind
        events.append(Event("\n".join(lines).encode(), kind))
    return text.encode(), events


@given(streams(), st.data())
def test_any_cutting_gives_the_same_events(stream, data):
    """Multi-line data, comments, a byte order mark and all line ends are read alike, wherever the chunks are cut."""
    raw, expected = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    parser, events = EventParser(), []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        events += parser.feed(raw[start:end])
    assert events + parser.finish() == expected


def test_one_byte_at_a_time():
    """A CRLF that is split between two chunks is one line end."""
    parser = EventParser()
    events = [e for byte in b"data: a\r\ndata: b\r\n\r\ndata:c\r\n\r\n" for e in parser.feed(bytes([byte]))]
    assert [e.data for e in events] == [b"a\nb", b"c"]


def test_events_come_as_soon_as_they_are_complete():
    """An event is not held back for the next one."""
    parser = EventParser()
    assert parser.feed(b"data: a\n") == []
    assert [e.data for e in parser.feed(b"\n")] == [b"a"]


def test_an_unterminated_event_is_given_at_the_end():
    """Servers that omit the last blank line lose nothing."""
    parser = EventParser()
    assert parser.feed(b"data: a\n\ndata: b") == [Event(b"a")]
    assert parser.finish() == [Event(b"b")]


def test_events_are_bounded():
    """A line that never ends is refused before it fills the memory."""
    parser = EventParser(max_bytes=1_000)
    with pytest.raises(ValueError, match="1000 bytes"):
        parser.feed(b"data: " + b"x" * 2_000)
