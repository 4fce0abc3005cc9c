"""What the SDK raises and warns.

    ClientError
    ├── RequestRefused        the server said no (a status that no retry cures); `status`, `message`
    │   └── ItemTooLarge      one item alone is over a limit; status 413
    ├── ServiceUnavailable    no answer after all retries; `attempts` per URL, chained to the last cause
    ├── InvalidAnswer         an answer that breaks the wire contract
    ├── ClientClosed          the client was closed before or during the call
    └── ScoreError            ``on_error="raise"``: some rewards failed; `response` holds both sides
    RewardWarning             ``on_error="warn"``: the same, as a warning

All of them survive pickling, so that they cross process borders.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from reward_service.errors import ClientError

if TYPE_CHECKING:
    from reward_service.client.answer import ScoreResponse


class PostError(ClientError):
    """A POST that brought no scores. `items` are the indices it carried, empty when it was the whole call."""

    items: tuple[int, ...] = ()

    def for_items(self, items: Sequence[int]) -> Self:
        """A fresh copy that names *items*, same cause: one object must not be raised in two callers."""
        twin = copy.copy(self)
        twin.items = tuple(items)
        twin.__cause__ = self.__cause__
        return twin

    def _where(self) -> str:
        if not self.items:
            return ""
        first, last = self.items[0], self.items[-1]
        return f"item {first}: " if first == last else f"items {first}-{last}: "


class RequestRefused(PostError):
    """The server refused the request with HTTP `status`; `message` is its own explanation."""

    def __init__(self, status: int, message: str, url: str = "") -> None:
        super().__init__(status, message, url)
        self.status = status
        self.message = message
        self.url = url

    def __str__(self) -> str:
        source = f" from {self.url}" if self.url else ""
        return f"{self._where()}HTTP {self.status}{source}: {self.message}"


class ItemTooLarge(RequestRefused):
    """One item alone is larger than the server, or `max_body_bytes`, allows."""

    def __str__(self) -> str:
        return f"{self._where()}{self.message}"


class ServiceUnavailable(PostError):
    """Nothing answered within the retries; `attempts` maps each URL to what was seen there."""

    def __init__(self, message: str, attempts: dict[str, str] | None = None) -> None:
        super().__init__(message, attempts)
        self.message = message
        self.attempts = attempts or {}

    def __str__(self) -> str:
        return f"{self._where()}{self.message}"


class InvalidAnswer(PostError):
    """The answer has another shape than the wire contract's; is the URL a reward service?"""

    def __str__(self) -> str:
        return f"{self._where()}{self.args[0]}"


class ClientClosed(ClientError):
    """The client was closed before or during the call; make a new one."""


class ScoreError(ClientError):
    """Some rewards failed; `response` is the whole `ScoreResponse`."""

    def __init__(self, message: str, response: ScoreResponse) -> None:
        super().__init__(message, response)
        self.response = response

    def __str__(self) -> str:
        return str(self.args[0])


class RewardWarning(UserWarning):
    """Some rewards failed; they are NaN or absent in what `score` returns."""
