"""The queue of waiting calls: by priority, then by age, and nobody starves."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")
LEVELS = 10
_SWEEP_AT = 64


def checked(priority: int) -> int:
    """*priority*; ValueError outside 0 (first) to 9 (last)."""
    if not 0 <= priority < LEVELS:
        raise ValueError(f"priority must be in 0 (first) to {LEVELS - 1} (last), got {priority!r}")
    return priority


class Entry(Generic[T]):
    """One item in the queue; the handle to remove it by."""

    __slots__ = ("gone", "item", "priority", "sequence", "since")

    def __init__(self, item: T, priority: int, since: float, sequence: int) -> None:
        self.item = item
        self.priority = priority
        self.since = since
        self.sequence = sequence
        self.gone = False


class WaitQueue(Generic[T]):
    """Priorities 0 (first) to 9 (last), FIFO inside; whoever waits longer than *starvation_s* goes with the first."""

    __slots__ = ("_gone", "_length", "_levels", "_sequence", "starvation_s")

    def __init__(self, starvation_s: float = 60.0) -> None:
        self.starvation_s = starvation_s
        self._levels: tuple[deque[Entry[T]], ...] = tuple(deque() for _ in range(LEVELS))
        self._gone = [0] * LEVELS  # removed entries that are still in their level
        self._length = 0
        self._sequence = 0

    def __len__(self) -> int:
        return self._length

    def put(self, item: T, priority: int, now: float) -> Entry[T]:
        """Queue *item*; ValueError for a priority outside 0 to 9."""
        entry = Entry(item, checked(priority), now, self._sequence)
        self._sequence += 1
        self._levels[priority].append(entry)
        self._length += 1
        return entry

    def _head(self, now: float) -> Entry[T] | None:
        best: Entry[T] | None = None
        best_rank = (LEVELS, 0)
        for priority, level in enumerate(self._levels):
            while level and level[0].gone:
                level.popleft()
                self._gone[priority] -= 1
            if level:
                rank = self._rank(level[0], now)
                if rank < best_rank:
                    best, best_rank = level[0], rank
        return best

    def peek(self, now: float) -> T | None:
        """The item that `pop` would give."""
        head = self._head(now)
        return None if head is None else head.item

    def pop(self, now: float) -> T | None:
        """Take the first item; None when empty."""
        head = self._head(now)
        if head is None:
            return None
        self._levels[head.priority].popleft()
        head.gone = True
        self._length -= 1
        return head.item

    def remove(self, entry: Entry[T]) -> bool:
        """Take *entry* out; False when it has left already."""
        if entry.gone:
            return False
        entry.gone = True
        self._length -= 1
        priority = entry.priority
        self._gone[priority] += 1
        level = self._levels[priority]
        if self._gone[priority] > _SWEEP_AT and 2 * self._gone[priority] > len(level):
            kept = [other for other in level if not other.gone]
            level.clear()
            level.extend(kept)
            self._gone[priority] = 0
        return True

    def entries(self, now: float) -> list[Entry[T]]:
        """What waits, in the order in which it would leave at *now*."""
        waiting = [entry for level in self._levels for entry in level if not entry.gone]
        return sorted(waiting, key=lambda entry: self._rank(entry, now))

    def _rank(self, entry: Entry[T], now: float) -> tuple[int, int]:
        return 0 if now - entry.since > self.starvation_s else entry.priority, entry.sequence
