"""Everything the package raises on purpose.

    RewardServiceError
    ├── ConfigError            a YAML file or a command line that cannot work
    │   └── PlacementError     the cluster cannot hold what the config asks for
    ├── UnknownScorer          no scorer of that name
    ├── ScorerLoadError        a scorer's module or class could not be imported
    ├── EnvironmentBuildError  a Python environment could not be built
    ├── RequestError           a whole HTTP request is refused; `status` is the answer
    │   ├── BadRequest 400 · Conflict 409 · TooLarge 413 · Unprocessable 422
    │   └── Overloaded 429 · Unavailable 503   with `retry_after_s`
    ├── ItemError              one item (or one reward of it) failed; the rest is answered
    │   ├── BadMedia           its image or video cannot be used
    │   └── ReplicaDied        the scorer process died while it held the item
    └── ClientError            raised by the SDK, see `reward_service.client.errors`

This module runs in scorer processes too: standard library only, Python 3.10.
"""

from __future__ import annotations


class RewardServiceError(Exception):
    """Base of all errors of this package."""


class ConfigError(RewardServiceError, ValueError):
    """A configuration that cannot work. The message lists every problem with file and line."""


class PlacementError(ConfigError):
    """The cluster cannot hold the configured replicas. The message shows the arithmetic."""


class UnknownScorer(RewardServiceError, KeyError):
    """No scorer is registered under the name."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown scorer"


class ScorerLoadError(RewardServiceError):
    """A scorer's module or class could not be imported; the cause is kept."""


class EnvironmentBuildError(RewardServiceError):
    """A Python environment could not be built; the message ends with the installer's last lines."""


class RequestError(RewardServiceError):
    """The whole request is refused with `status`."""

    status = 400
    retry_after_s: float | None = None

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        if retry_after_s is not None:
            self.retry_after_s = retry_after_s


class BadRequest(RequestError):
    status = 400


class Conflict(RequestError):
    status = 409


class TooLarge(RequestError):
    status = 413


class Unprocessable(RequestError):
    status = 422


class Overloaded(RequestError):
    status = 429
    retry_after_s = 1.0


class Unavailable(RequestError):
    status = 503
    retry_after_s = 5.0


class ItemError(RewardServiceError):
    """One item failed; its neighbours are scored."""


class BadMedia(ItemError, ValueError):
    """An image or video that cannot be used: not decodable, over a bound, or of a refused kind."""


class ReplicaDied(ItemError):
    """The scorer process died while it held the item, on the second try too."""


class ClientError(RewardServiceError):
    """Base of what the SDK raises."""
