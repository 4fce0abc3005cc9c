"""What a judge saw: counts, arrivals, and questions about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request as it came, refused or not: monotonic seconds, the last text of its prompt (or what it wants
    embedded), its path, its headers (some, their names lowercase, credentials masked) and its body.
    """

    at: float
    text: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Counters:
    """Counts since the start or the last reset. *arrivals* holds them all when the judge keeps bodies."""

    def __init__(self) -> None:
        self.n: Counter[str] = Counter()
        self.arrivals: list[Arrival] = []
        self.arrived_at: list[float] = []
        self.admitted_at: list[float] = []
        self.prompts: Counter[str] = Counter()
        self.connections: set[object] = set()
        self.inflight = 0
        self.max_inflight = 0

    @property
    def received(self) -> int:
        """All requests that came."""
        return self.n["received"]

    @property
    def ok(self) -> int:
        """Requests answered properly."""
        return self.n["ok"]

    @property
    def client_gone(self) -> int:
        """Requests whose client closed before the answer was complete: proof that a loser was really cancelled."""
        return self.n["client_gone"]

    @property
    def duplicate_work(self) -> int:
        """Requests that were worked on for a prompt that had been worked on before; a refusal is no work."""
        return sum(count - 1 for count in self.prompts.values())

    def status(self, code: int) -> int:
        """Answers with this HTTP status other than 200."""
        return self.n[str(code)]

    def max_in_window(self, seconds: float, admitted: bool = False) -> int:
        """The largest number of arrivals (or admitted requests) in any half-open window of *seconds*."""
        return max_in_window(self.admitted_at if admitted else self.arrived_at, seconds)

    def as_dict(self) -> dict[str, Any]:
        """The counts for the wire."""
        return {
            **dict(sorted(self.n.items())),
            "received": self.received,
            "inflight": self.inflight,
            "max_inflight": self.max_inflight,
            "duplicate_work": self.duplicate_work,
            "connections": len(self.connections),
        }


def max_in_window(times: Iterable[float], seconds: float) -> int:
    """The largest number of events in any half-open interval of *seconds*."""
    ordered = sorted(times)
    best = low = 0
    for high, moment in enumerate(ordered):
        while ordered[low] <= moment - seconds:
            low += 1
        best = max(best, high - low + 1)
    return best
