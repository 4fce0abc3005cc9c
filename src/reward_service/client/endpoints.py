"""Choosing among several base URLs: the healthy one with the least in flight; pure: time comes in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

from reward_service.client.settings import without_password

FIRST_REST_S = 1.0
MAX_REST_S = 60.0


@dataclass(eq=False)
class Endpoint:
    """One base URL and what is known about it. `label` may be shown; `url` may hold a password."""

    url: str
    label: str
    in_flight: int = 0
    failures: int = 0
    rest_began: float = 0.0
    rest_until: float = 0.0
    # When its last failure came with a Retry-After: the end of that.
    asked_until: float | None = None
    last_used: int = 0

    def resting(self, now: float) -> bool:
        """True while it should be spared; after its rest, one request at a time probes it."""
        return self.failures > 0 and (now < self.rest_until or self.in_flight > 0)


class Endpoints:
    """The base URLs of a client. A rest only guides the choice: if all rest, the first to wake is used."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._all = [Endpoint(url, without_password(url)) for url in urls]
        self._uses = count(1)

    def __len__(self) -> int:
        return len(self._all)

    def pick(self, now: float, avoid: Endpoint | None = None) -> Endpoint:
        """The best URL now, or the first to wake if all rest; *avoid* comes after its equals."""

        def cost(endpoint: Endpoint) -> tuple[bool, float, bool, int, int]:
            resting = endpoint.resting(now)
            until = endpoint.rest_until if resting else 0.0
            return (resting, until, endpoint is avoid, endpoint.in_flight, endpoint.last_used)

        return min(self._all, key=cost)

    def started(self, endpoint: Endpoint, items: int) -> None:
        """A request with *items* goes to *endpoint*."""
        endpoint.in_flight += items
        endpoint.last_used = next(self._uses)

    def finished(self, endpoint: Endpoint, items: int) -> None:
        """That request is over, in whatever way."""
        endpoint.in_flight -= items

    def succeeded(self, endpoint: Endpoint) -> None:
        """It answered."""
        endpoint.failures = 0
        endpoint.asked_until = None

    def failed(self, endpoint: Endpoint, began: float, now: float, asked_s: float | None) -> None:
        """A request that *began* there failed: rest for *asked_s* when the server said so, else ever longer.

        Requests that were on their way when a rest began tell nothing new, so they do not lengthen it.
        """
        if endpoint.failures == 0 or began >= endpoint.rest_began:
            endpoint.failures += 1
            endpoint.rest_began = now
        growing = min(FIRST_REST_S * 2.0 ** min(endpoint.failures - 1, 60), MAX_REST_S)
        rest = growing if asked_s is None else asked_s
        endpoint.rest_until = max(endpoint.rest_until, now + rest)
        endpoint.asked_until = None if asked_s is None else now + asked_s
