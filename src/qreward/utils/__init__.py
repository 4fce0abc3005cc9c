"""The names that users import; re-exports only.

``schedule`` and ``retry`` are functions here and modules in ``sys.modules``. Both modules are imported first, so that
the functions are bound last and stay; as ``import qreward.utils.schedule as s`` binds the function, it carries the
module's other names.
"""

import importlib
from typing import TYPE_CHECKING, Any

from qreward.utils import retry as _retry_module
from qreward.utils import schedule as _schedule_module

if TYPE_CHECKING:
    from qreward.utils.patch import patch_httpx
    from qreward.utils.socket_keepalive import (
        RequestsTCPKeepAliveAdapter,
        aiohttp_keepalive_socket_factory,
        httpx_keepalive_socket,
    )

from qreward.retrying import retry
from qreward.schedule import schedule

for _function, _module in ((schedule, _schedule_module), (retry, _retry_module)):
    for _name in _module.__all__:
        setattr(_function, _name, getattr(_module, _name))

_LAZY = {
    "RequestsTCPKeepAliveAdapter": "socket_keepalive",
    "aiohttp_keepalive_socket_factory": "socket_keepalive",
    "httpx_keepalive_socket": "socket_keepalive",
    "patch_httpx": "patch",
}

__all__ = [
    "RequestsTCPKeepAliveAdapter",
    "aiohttp_keepalive_socket_factory",
    "httpx_keepalive_socket",
    "patch_httpx",
    "retry",
    "schedule",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:  # these import aiohttp, httpx or requests
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
