"""The bytes between gateway, supervisors and scorer processes: frames of JSON plus an optional blob.

A frame is ``u32 json_length, u32 blob_length`` (little endian), the JSON, the blob. Nothing is pickled.
`docs/protocol.md` lists the messages. This module runs in scorer processes: standard library only, Python 3.10.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Any

PROTOCOL_VERSION = 1
HEADER = struct.Struct("<II")
# A peer that announces more than this is not one of ours; media of one batch may be large, JSON is not.
MAX_JSON_BYTES = 1 << 28
MAX_BLOB_BYTES = 1 << 31
RECEIVE_BYTES = 1 << 18

Message = dict[str, Any]
# Where a gateway listens, and its token: ["unix", path, token] on this node, ["tcp", host, port, token] elsewhere.
Address = list[Any]

loads: Callable[[bytes], Any]
try:
    import orjson

    loads = orjson.loads
except ImportError:
    loads = json.loads


class ProtocolError(Exception):
    """The peer does not speak this protocol."""


def pack(message: Message | bytes, blob: bytes = b"") -> bytes:
    """One frame; *message* is a dict, or JSON that is already encoded."""
    if isinstance(message, bytes):
        body = message
    else:
        # What an exception says may hold lone surrogates (from file names), which are no Unicode text.
        body = json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")
    return HEADER.pack(len(body), len(blob)) + body + blob


class FrameBuffer:
    """Cuts a byte stream into frames: `feed` what arrived, then iterate `frames`."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def frames(self) -> Iterator[tuple[Message, bytes]]:
        """Complete frames so far as ``(message, blob)``; raises ProtocolError on nonsense."""
        buffer = self._buffer
        position = 0
        try:
            while len(buffer) - position >= HEADER.size:
                json_length, blob_length = HEADER.unpack_from(buffer, position)
                if json_length > MAX_JSON_BYTES or blob_length > MAX_BLOB_BYTES:
                    raise ProtocolError(f"a frame of {json_length} + {blob_length} bytes is out of bounds")
                start = position + HEADER.size
                end = start + json_length + blob_length
                if len(buffer) < end:
                    break
                message = decode(bytes(buffer[start : start + json_length]))
                blob = bytes(buffer[start + json_length : end])
                position = end
                yield message, blob
        finally:
            if position:
                del buffer[:position]


def decode(raw: bytes) -> Message:
    """The JSON object in *raw*; raises ProtocolError for anything else."""
    try:
        try:
            message = loads(raw)
        except ValueError:
            # Metadata may hold NaN beside integers beyond 64 bits: json takes what orjson refuses.
            message = json.loads(raw)
    except ValueError as error:
        raise ProtocolError(f"not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"expected an object, got {type(message).__name__}")
    return message


class Channel:
    """A blocking connection that sends and receives frames; for scorer processes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._frames = FrameBuffer()

    def fileno(self) -> int:
        return self.sock.fileno()

    def send(self, message: Message | bytes, blob: bytes = b"") -> None:
        self.sock.sendall(pack(message, blob))

    def receive_available(self) -> list[tuple[Message, bytes]] | None:
        """Read once (blocks when nothing is there); complete frames, or None at end of stream."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            return None
        self._frames.feed(data)
        return list(self._frames.frames())

    def receive_with_fds(self) -> tuple[Message, list[int]]:
        """One frame, and no byte of the next one, and the descriptors that came with it (unix sockets only)."""
        fds: list[int] = []
        json_length, blob_length = HEADER.unpack(self._exactly(HEADER.size, fds))
        if json_length + blob_length > RECEIVE_BYTES:
            raise ProtocolError(f"a first frame of {json_length} + {blob_length} bytes is out of bounds")
        return decode(self._exactly(json_length + blob_length, fds)[:json_length]), fds

    def _exactly(self, size: int, fds: list[int]) -> bytes:
        data = b""
        while len(data) < size:
            if self.sock.family == socket.AF_UNIX:
                part, received, _, _ = socket.recv_fds(self.sock, size - len(data), 4)
                fds += received
            else:
                part = self.sock.recv(size - len(data))
            if not part:
                raise ConnectionError("the gateway closed the connection during the handshake")
            data += part
        return data

    def close(self) -> None:
        self.sock.close()


def connect(address: Address, timeout_s: float = 10.0) -> Channel:
    """Open a channel to *address*; raises OSError when nobody listens."""
    if address[0] == "unix":
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.settimeout(timeout_s)
            sock.connect(str(address[1]))
        except OSError:
            sock.close()
            raise
    else:
        sock = socket.create_connection((str(address[1]), int(address[2])), timeout=timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.settimeout(None)
    return Channel(sock)
