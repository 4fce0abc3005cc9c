"""TCP keepalive: the kernel notices a peer that vanished without a word, also on connections that are idle."""

from __future__ import annotations

import socket
import sys
from typing import Any

# What `socket.getaddrinfo` returns: family, type, protocol, canonical name, address.
AddrInfo = tuple[int, int, int, str, Any]


def httpx_keepalive_socket(
    keepalive_secs: int = 60, keepalive_interval: int = 30, keepalive_cnt: int = 3
) -> list[tuple[int, int, int]]:
    """Socket options for ``httpx.AsyncHTTPTransport(socket_options=...)``, as ``(level, option, value)``.

    The first probe goes out after *keepalive_secs* of silence, then one every *keepalive_interval* seconds;
    *keepalive_cnt* probes without an answer end the connection. An option that the platform lacks is left out.
    """
    idle = "TCP_KEEPALIVE" if sys.platform == "darwin" else "TCP_KEEPIDLE" if sys.platform == "linux" else ""
    wanted = ((idle, keepalive_secs), ("TCP_KEEPINTVL", keepalive_interval), ("TCP_KEEPCNT", keepalive_cnt))
    known = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *known]


def aiohttp_keepalive_socket_factory(
    addr_info: AddrInfo, keepalive_secs: int = 60, keepalive_interval: int = 30, keepalive_cnt: int = 3
) -> socket.socket:
    """A socket for ``aiohttp.TCPConnector(socket_factory=...)``, IPv4 or IPv6 as *addr_info* says."""
    family, kind, proto = addr_info[:3]
    sock = socket.socket(family=family, type=kind, proto=proto)
    try:
        for level, option, value in httpx_keepalive_socket(keepalive_secs, keepalive_interval, keepalive_cnt):
            sock.setsockopt(level, option, value)
        if kind == socket.SOCK_STREAM:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock
