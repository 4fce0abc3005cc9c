"""`PriorityTaskQueue`: the queue of `qreward.policy.priority` with a clock and a lock."""

from __future__ import annotations

import math
import threading
from typing import Any

from qreward.policy.priority import WaitQueue
from qreward.runtime import clock
from qreward.schedule.config import Priority


class PriorityTaskQueue:
    """Items by priority, first in first out inside one; never blocks. Thread-safe.

    An item that has waited longer than *starvation_threshold* seconds counts as priority 0; 0 = never.
    Raises ValueError for a negative threshold.
    """

    def __init__(self, starvation_threshold: float = 60.0) -> None:
        if starvation_threshold < 0:
            raise ValueError(f"starvation_threshold must be >= 0, got {starvation_threshold!r}")
        self._starvation_s = starvation_threshold or math.inf
        self._lock = threading.Lock()
        self._queue = self._empty()

    def _empty(self) -> WaitQueue[Any]:
        return WaitQueue(starvation_s=self._starvation_s)

    def put(self, item: Any, priority: int = Priority.NORMAL) -> None:
        """Add *item*; ValueError for a *priority* outside 0 (first) to 9 (last)."""
        with self._lock:
            self._queue.put(item, int(priority), clock.monotonic())

    def get(self) -> Any | None:
        """The next item, taken out; None when there is none."""
        with self._lock:
            return self._queue.pop(clock.monotonic())

    def peek(self) -> Any | None:
        """The next item; None when there is none."""
        with self._lock:
            return self._queue.peek(clock.monotonic())

    @property
    def queue_size(self) -> int:
        """Items that wait."""
        return len(self._queue)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not len(self._queue)

    def clear(self) -> None:
        """Forget all items."""
        with self._lock:
            self._queue = self._empty()

    def snapshot(self) -> list[dict[str, Any]]:
        """``priority`` (as it counts now), ``sequence``, ``wait_seconds`` and ``cancelled`` of every item in order."""
        with self._lock:
            now = clock.monotonic()
            return [
                {
                    "priority": 0 if now - entry.since > self._starvation_s else entry.priority,
                    "sequence": entry.sequence,
                    "wait_seconds": now - entry.since,
                    "cancelled": False,
                }
                for entry in self._queue.entries(now)
            ]
