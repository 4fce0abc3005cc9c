"""Fair shares between priorities, and urgency inside one."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from qreward.policy.priority import LEVELS, checked

T = TypeVar("T")
_PATIENCE_S = 60.0  # a task without a deadline counts as due after this long, so that deadlines cannot starve it


class FairEntry(Generic[T]):
    """One waiting task."""

    __slots__ = ("due", "gone", "item", "priority", "sequence")

    def __init__(self, item: T, priority: int, due: float, sequence: int) -> None:
        self.item, self.priority, self.due, self.sequence = item, priority, due, sequence
        self.gone = False

    def __lt__(self, other: FairEntry[T]) -> bool:
        return (self.due, self.sequence) < (other.due, other.sequence)


_Level = dict[Hashable, list[FairEntry[T]]]


class FairQueue(Generic[T]):
    """Priorities 0 to 9 share by weight: priority p gets 10 − p turns where priority 9 gets one, so nobody starves.

    Inside a priority the task that is due first goes first: at its deadline, or a minute after it came. Tasks of
    different *groups* need different things, so none of them stands in the way of another group's.
    """

    def __init__(self) -> None:
        self._levels: list[_Level[T]] = [{} for _ in range(LEVELS)]
        self._served = [0.0] * LEVELS  # turns taken, each counted as 1 / weight
        self._floor = 0.0
        self._length = 0
        self._sequence = itertools.count()

    def __len__(self) -> int:
        return self._length

    def put(
        self, item: T, priority: int, now: float, deadline: float | None = None, group: Hashable = None
    ) -> FairEntry[T]:
        """Queue *item*; ValueError for a priority outside 0 to 9."""
        if not self._heads_of(checked(priority)):
            # Turns that were not used while nothing waited cannot be saved up.
            self._served[priority] = max(self._served[priority], self._floor)
        due = now + _PATIENCE_S if deadline is None else min(deadline, now + _PATIENCE_S)
        entry = FairEntry(item, priority, due, next(self._sequence))
        heapq.heappush(self._levels[priority].setdefault(group, []), entry)
        self._length += 1
        return entry

    def _heads_of(self, priority: int) -> list[FairEntry[T]]:
        level = self._levels[priority]
        heads = []
        for group, heap in list(level.items()):
            while heap and heap[0].gone:
                heapq.heappop(heap)
            if heap:
                heads.append(heap[0])
            else:
                del level[group]
        return heads

    def heads(self) -> list[FairEntry[T]]:
        """The first entry of every group at every priority, whose turn it is first."""
        waiting = [entry for priority in range(LEVELS) for entry in self._heads_of(priority)]
        waiting.sort(key=lambda entry: (self._served[entry.priority], entry.priority, entry.due, entry.sequence))
        return waiting

    def take(self, entry: FairEntry[T]) -> T:
        """*entry* gets its turn."""
        self._floor = max(self._floor, self._served[entry.priority])
        self._served[entry.priority] += 1.0 / (LEVELS - entry.priority)
        self.remove(entry)
        return entry.item

    def remove(self, entry: FairEntry[T]) -> None:
        """Take *entry* out without a turn; nothing happens when it has left."""
        if not entry.gone:
            entry.gone = True
            self._length -= 1

    def __iter__(self) -> Iterator[FairEntry[T]]:
        return (entry for level in self._levels for heap in level.values() for entry in heap if not entry.gone)
