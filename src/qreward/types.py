"""Names for the shapes that callers pass to qreward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import httpx  # the hooks name its classes; importing this module does not import it

SOCKET_OPTION: TypeAlias = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]
"""One argument list of `socket.setsockopt`: level, option, value (or ``None`` and a length)."""

RetryPredicate: TypeAlias = Callable[[Exception], bool]
"""Decides whether an exception is worth another attempt."""

BackoffGenerator: TypeAlias = Callable[[int], float]
"""Seconds to wait before the next attempt, given how many have failed (1, 2, ...)."""

RequestHook: TypeAlias = Callable[["httpx.Request"], Awaitable[None] | None]
"""Sees every request before it is sent; may be async."""

ResponseHook: TypeAlias = Callable[["httpx.Response"], Awaitable[None] | None]
"""Sees every response before it is read; may be async."""
