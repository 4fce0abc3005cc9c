"""Where scorer processes and supervisors connect: a unix socket, and a TCP port for other nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from reward_service.gateway.arena import Arena
from reward_service.gateway.encode import InlineEncoder, SharedMemoryEncoder
from reward_service.gateway.group import RewardGroup
from reward_service.gateway.replica import ScorerLink
from reward_service.workers.protocol import PROTOCOL_VERSION, FrameBuffer, Message, ProtocolError, pack

log = logging.getLogger(__name__)
# A hello is a few hundred bytes; whoever has not said it may not fill our memory.
MOST_BEFORE_HELLO = 1 << 16
scorer_log = logging.getLogger("reward_service.scorer")


class LinkServer:
    """Accepts connections and hands them to the reward they belong to."""

    def __init__(self, groups: Mapping[str, RewardGroup], arena: Arena) -> None:
        self.groups = groups
        self.arena = arena
        self.token = secrets.token_urlsafe(24)
        self._folder = Path(tempfile.mkdtemp(prefix="reward-service-"))
        self.unix_path = str(self._folder / "gateway.sock")
        self.tcp_port: int | None = None
        self._servers: list[asyncio.Server] = []

    async def start(self, tcp_host: str | None) -> None:
        """Listen; on *tcp_host* too when replicas may live on other nodes."""
        loop = asyncio.get_running_loop()
        self._servers.append(await loop.create_unix_server(lambda: _Peer(self), self.unix_path))
        if tcp_host is not None:
            server = await loop.create_server(lambda: _Peer(self), tcp_host, 0)
            self.tcp_port = server.sockets[0].getsockname()[1]
            self._servers.append(server)

    def close(self) -> None:
        """Stop listening and remove the socket."""
        for server in self._servers:
            server.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class _Peer(asyncio.Protocol):
    """One connection, anonymous until its hello."""

    def __init__(self, server: LinkServer) -> None:
        self._server = server
        self._frames = FrameBuffer()
        self._before_hello = 0
        self._transport: asyncio.Transport | None = None
        self._group: RewardGroup | None = None
        self._replica = 0
        self._link: ScorerLink | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._group is None:
            self._before_hello += len(data)
            if self._before_hello > MOST_BEFORE_HELLO:
                log.error("dropping a connection that sends without having said who it is")
                return self._close()
        self._frames.feed(data)
        try:
            for message, _ in self._frames.frames():
                self._received(message)
        except (ProtocolError, KeyError, TypeError, ValueError, IndexError) as error:
            log.error("dropping a connection that does not speak the protocol: %r", error)
            return self._close()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._group is None:
            return
        if self._link is not None:
            self._group.disconnected(self._replica, self._link)
        elif self._transport is not None:
            self._group.supervisor_lost(self._replica, self._transport)

    def _received(self, message: Message) -> None:
        if self._group is None:
            self._hello(message)
        elif message["t"] == "result" and self._link is not None:
            self._group.answered(self._link, message)
        elif message["t"] == "state":
            self._group.set_state(self._replica, message)
        elif message["t"] == "log":
            scorer_log.info("%s: %s", self._group.replicas[self._replica].label, message["line"])

    def _hello(self, message: Message) -> None:
        assert self._transport is not None
        if not secrets.compare_digest(str(message.get("token", "")), self._server.token):
            log.error("refusing a connection with a wrong token")
            return self._close()
        if message.get("protocol") != PROTOCOL_VERSION:
            reason = f"protocol {message.get('protocol')}, this gateway speaks {PROTOCOL_VERSION}"
            self._transport.write(pack({"t": "refused", "reason": reason}))
            return self._close()
        group = self._server.groups[message["reward"]]
        self._replica = int(message["replica"])
        replica = group.replicas[self._replica]
        self._group = group
        if message["role"] == "supervisor":
            replica.controlled(self._transport)
            return None
        local = self._welcome()
        self._link = ScorerLink(message, self._transport, SharedMemoryEncoder() if local else InlineEncoder())
        group.connected(self._replica, self._link)
        return None

    def _welcome(self) -> bool:
        """Answer the handshake, with the arena's descriptor where it can travel; whether it did."""
        assert self._transport is not None
        peer = self._transport.get_extra_info("socket")
        if peer.family != socket.AF_UNIX:
            self._transport.write(pack({"t": "welcome"}))
            return False
        # Nothing was written to the transport yet, so writing past it keeps the order.
        with contextlib.closing(socket.socket(fileno=os.dup(peer.fileno()))) as raw:
            welcome = pack({"t": "welcome", "arena_bytes": self._server.arena.capacity})
            socket.send_fds(raw, [welcome], [self._server.arena.read_only_fd])
        return True

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()
