"""Equal idempotency keys share one `Work`: scored once, answered as often as asked."""

from __future__ import annotations

from collections import OrderedDict

from reward_service.errors import Conflict
from reward_service.gateway.work import Work


class IdempotencyCache:
    """Keys to works, running or answered; the least recently used answered ones leave first.

    Works with a transient error (a timeout, a dead replica) are forgotten, so that a retry tries again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: OrderedDict[str, tuple[bytes, Work]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str, fingerprint: bytes) -> Work | None:
        """The work of an equal earlier request; raises Conflict when the payload differs."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        known, work = entry
        if known != fingerprint:
            raise Conflict(f"idempotency_key {key[:80]!r} was used with another payload")
        self._entries.move_to_end(key)
        return work

    def add(self, key: str, fingerprint: bytes, work: Work) -> None:
        """Remember *work*, which is about to start."""
        self._entries[key] = (fingerprint, work)
        work.on_done = lambda done: self._finished(key, done)
        self._shrink()

    def _finished(self, key: str, work: Work) -> None:
        entry = self._entries.get(key)
        if work.transient and entry is not None and entry[1] is work:
            del self._entries[key]

    def _shrink(self) -> None:
        """Running works stay, however many they are: forgetting one could score it twice."""
        if len(self._entries) <= self._size:
            return
        for key in [key for key, (_, work) in self._entries.items() if not work.pending]:
            if len(self._entries) <= self._size:
                return
            del self._entries[key]
