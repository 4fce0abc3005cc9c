"""Frames survive any cut of the byte stream, and nonsense is refused."""

from __future__ import annotations

import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.workers.protocol import Channel, FrameBuffer, ProtocolError, connect, pack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)
MESSAGES = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), JSON, max_size=4)
FRAMES = st.lists(st.tuples(MESSAGES, st.binary(max_size=50)), max_size=6)


@given(FRAMES, st.lists(st.integers(1, 40), min_size=1))
def test_frames_survive_any_cut(frames, cuts) -> None:
    """However the stream is cut, the same messages and blobs come out, in order, once."""
    stream = b"".join(pack(message, blob) for message, blob in frames)
    buffer, received, at, turn = FrameBuffer(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        buffer.feed(stream[at : at + step])
        received += buffer.frames()
        at, turn = at + step, turn + 1
    assert received == frames


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 1, 0) + b"{",
        struct.pack("<II", 1 << 30, 0),
        struct.pack("<II", 2, (1 << 31) + 1),
        struct.pack("<II", 3, 0) + b"\xff\xfe\xfd",
    ],
)
def test_nonsense_is_refused(raw) -> None:
    """What is no object, no JSON or beyond all bounds raises ProtocolError."""
    buffer = FrameBuffer()
    buffer.feed(raw)
    with pytest.raises(ProtocolError):
        list(buffer.frames())


def test_text_that_is_no_unicode_is_replaced() -> None:
    """An exception's message may hold the bytes of a file name; the peer gets valid JSON."""
    buffer = FrameBuffer()
    buffer.feed(pack({"e": "caf\udce9 é"}))
    assert list(buffer.frames()) == [({"e": "caf? é"}, b"")]


def test_numbers_that_only_pythons_json_knows_arrive() -> None:
    """NaN in a request's metadata beside an integer beyond 64 bits does not break the connection."""
    buffer = FrameBuffer()
    buffer.feed(pack(b'{"m": {"a": 1180591620717411303424, "b": NaN}}'))
    ((message, _),) = buffer.frames()
    assert message["m"]["a"] == 2**70
    assert message["m"]["b"] != message["m"]["b"]


def test_a_channel_sends_frames_and_sees_the_end(tmp_path) -> None:
    """Blocking side: frames in, frames out, None at the end of the stream, OSError when nobody listens."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="refused"):
            connect(["unix", str(tmp_path / "s"), "token"])
        listener.listen()
        channel = connect(["unix", str(tmp_path / "s"), "token"])
        peer = Channel(listener.accept()[0])
        channel.send({"a": 1}, b"blob")
        assert peer.receive_available() == [({"a": 1}, b"blob")]
        channel.close()
        assert peer.receive_available() is None
        peer.close()


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_batch_that_comes_with_the_welcome_is_not_lost(family) -> None:
    """Work may already wait for a process that connects: both frames arrive in one piece."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ends = socket.socketpair() if family == socket.AF_UNIX else None
        ours, theirs = ends or (socket.create_connection(listener.getsockname()), listener.accept()[0])
    channel = Channel(ours)
    theirs.sendall(pack({"t": "welcome"}) + pack({"t": "batch", "id": 1}, b"blob"))
    assert channel.receive_with_fds() == ({"t": "welcome"}, [])
    assert channel.receive_available() == [({"t": "batch", "id": 1}, b"blob")]
    theirs.close()
    channel.close()
