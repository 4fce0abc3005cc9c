"""`RunningTaskPool`: how many tasks run, compared with the peaks of recent windows."""

from __future__ import annotations

import threading
import time
import warnings
from typing import ClassVar

DEFAULT_WINDOW_MAX_SIZE = 12
DEFAULT_WINDOW_INTERVAL = 60
DEFAULT_THRESHOLD = 3


class RunningTaskPool:
    """A counter that remembers its peak in each of the last *window_max_size* windows of *window_interval* seconds."""

    global_lock: ClassVar[threading.Lock] = threading.Lock()
    global_task_pool: ClassVar[dict[str, RunningTaskPool]] = {}

    def __init__(
        self,
        window_max_size: int = DEFAULT_WINDOW_MAX_SIZE,
        window_interval: int = DEFAULT_WINDOW_INTERVAL,
        threshold: int = DEFAULT_THRESHOLD,
    ) -> None:
        self._window_max_size = window_max_size
        self._window_interval = window_interval
        self._threshold = threshold
        self._lock = threading.Lock()
        self._value = 0
        self._max_size_map: dict[int, int] = {}  # window -> peak, oldest first

    @classmethod
    def get_pool(
        cls,
        key: str,
        window_max_size: int = DEFAULT_WINDOW_MAX_SIZE,
        window_interval: int = DEFAULT_WINDOW_INTERVAL,
        threshold: int = DEFAULT_THRESHOLD,
    ) -> RunningTaskPool:
        """The pool of *key*; the first caller decides its settings."""
        with cls.global_lock:
            pool = cls.global_task_pool.get(key)
            if pool is None:
                pool = cls.global_task_pool[key] = cls(window_max_size, window_interval, threshold)
            return pool

    def add(self, value: int = 1) -> int:
        """Add *value* (negative when tasks end) and return how many run."""
        with self._lock:
            self._value += value
            peaks, window = self._max_size_map, int(time.time() // self._window_interval)
            peaks[window] = max(peaks.get(window, self._value), self._value)
            while len(peaks) > self._window_max_size:
                del peaks[next(iter(peaks))]
            return self._value

    def can_submit(self, multiply: float = 1) -> bool:
        """Whether there is room: at most *threshold* run, or *multiply* times as many are below a remembered peak."""
        with self._lock:
            if self._value <= self._threshold:
                return True
            return max(self._max_size_map.values(), default=0) > self._value * multiply

    def less_than(self, multiply: float = 1) -> bool:
        """Deprecated name of `can_submit`."""
        warnings.warn("less_than is deprecated, it is called can_submit now", DeprecationWarning, stacklevel=2)
        return self.can_submit(multiply)
