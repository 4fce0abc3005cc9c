"""Keepalive reaches real sockets, of both address families."""

from __future__ import annotations

import pickle
import socket
import sys

import pytest

from qreward.client.requests_adapter import RequestsTCPKeepAliveAdapter
from qreward.client.sockets import aiohttp_keepalive_socket_factory, httpx_keepalive_socket

linux = pytest.mark.skipif(sys.platform != "linux", reason="the option names are Linux's")


@linux
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_factory_sets_the_options(family):
    """IPv4 and IPv6 sockets alike probe after the seconds asked for, and never block the loop."""
    address = ("127.0.0.1", 80) if family == socket.AF_INET else ("::1", 80, 0, 0)
    with aiohttp_keepalive_socket_factory((family, socket.SOCK_STREAM, 6, "", address), 11, 12, 4) as sock:
        read = [
            sock.getsockopt(socket.IPPROTO_TCP, o)
            for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        ]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert (sock.family, read, sock.getblocking()) == (family, [11, 12, 4], False)


def test_options_of_other_platforms(monkeypatch):
    """macOS has its own name for the idle time; a missing option is left out."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(socket, "TCP_KEEPALIVE", 99, raising=False)
    assert (socket.IPPROTO_TCP, 99, 5) in httpx_keepalive_socket(5)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delattr(socket, "TCP_KEEPCNT")
    assert [value for _, _, value in httpx_keepalive_socket(5, 6, 7)] == [1, 6]


@linux
async def test_the_clients_connections_have_keepalive(judge, proxy, hello, monkeypatch):
    """The proxy's own connections are made by the factory."""
    made = []
    original = socket.socket.setsockopt
    monkeypatch.setattr(
        socket.socket, "setsockopt", lambda self, *args: (made.append(args[:2]), original(self, *args))[1]
    )
    await proxy.chat_completion(hello, "m")
    assert (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) in made


def test_requests_adapter_passes_the_options():
    """Connections of the pool, direct and through a proxy, carry them; a pickled adapter still does."""
    adapter = pickle.loads(pickle.dumps(RequestsTCPKeepAliveAdapter()))
    assert adapter.poolmanager.connection_pool_kw["socket_options"] == httpx_keepalive_socket()
    manager = adapter.proxy_manager_for("http://proxy:1")
    assert manager.connection_pool_kw["socket_options"] == httpx_keepalive_socket()
    own = RequestsTCPKeepAliveAdapter(socket_options=[(1, 2, 3)])
    assert own.poolmanager.connection_pool_kw["socket_options"] == [(1, 2, 3)]
    assert "socket_options" not in RequestsTCPKeepAliveAdapter(socket_options=None).poolmanager.connection_pool_kw
