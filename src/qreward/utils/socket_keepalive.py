"""TCP keepalive for aiohttp, httpx and requests under the import path of QReward 0.1.7; re-exports only."""

from qreward.client.requests_adapter import RequestsTCPKeepAliveAdapter
from qreward.client.sockets import aiohttp_keepalive_socket_factory, httpx_keepalive_socket

__all__ = ["RequestsTCPKeepAliveAdapter", "aiohttp_keepalive_socket_factory", "httpx_keepalive_socket"]
