"""TCP keepalive for `requests`."""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter

from qreward.client.sockets import httpx_keepalive_socket

_DEFAULT: Any = object()


class RequestsTCPKeepAliveAdapter(HTTPAdapter):
    """``session.mount("https://", RequestsTCPKeepAliveAdapter())``.

    *socket_options* is a list of ``(level, option, value)``; by default `httpx_keepalive_socket()`, None = leave the
    sockets as urllib3 makes them. All other arguments are HTTPAdapter's.
    """

    # HTTPAdapter pickles the attributes listed here.
    __attrs__ = [*HTTPAdapter.__attrs__, "socket_options"]  # noqa: RUF012 - as in the base class

    def __init__(self, *args: Any, socket_options: Any = _DEFAULT, **kwargs: Any) -> None:
        self.socket_options = httpx_keepalive_socket() if socket_options is _DEFAULT else socket_options
        super().__init__(*args, **kwargs)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        """Connections to servers carry the options."""
        super().init_poolmanager(connections, maxsize, block, **self._with_options(pool_kwargs))

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        """Connections to proxies carry them too."""
        return super().proxy_manager_for(proxy, **self._with_options(proxy_kwargs))

    def _with_options(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.socket_options is None:
            return kwargs
        return {"socket_options": self.socket_options, **kwargs}
