"""A rate limit that holds in every window, as the server sees it, and sends smoothly."""

from __future__ import annotations

from collections import deque

_GUARD = 0.02  # of the window: what the network may move a request by
_GUARD_FLOOR_S = 0.005
_CATCH_UP = 0.9  # of the even spacing, while the starts are behind it
_ROOM_S = 0.01
_LONGEST_LOG = 100_000


class WindowRate:
    """At most *size* starts in any *window_s* seconds, spread evenly.

    Two rules. The log: a start waits until the one *size* before it is a window and a guard band for jitter old (2 %,
    at least 5 ms, at most a fifth of the window). The spacing: it waits for its place in an even row, with up to 10 ms
    of room, so that late timers cost no throughput. While the log alone holds the starts back, the row is a tenth
    denser: what a stalled program missed is made up for.

    A window of more than a hundred thousand starts is enforced by the spacing alone, in constant memory.
    """

    __slots__ = ("_dense", "_even", "_gap", "_log", "_next", "_room", "size", "window_s")

    def __init__(self, size: float, window_s: float = 1.0) -> None:
        self._log: deque[float] | None = deque()
        self._next = float("-inf")  # the next place in the row
        self._even = 0.0
        self.configure(size, window_s)

    def configure(self, size: float, window_s: float) -> None:
        """Change the rate; the starts that are remembered, all of the last window among them, still count.

        Raises ValueError for a size below 1 or a window that is not above 0. Fractions of a start are cut off.
        """
        if not size >= 1 or not window_s > 0:
            raise ValueError(f"a rate needs size >= 1 and window > 0, got {size!r} per {window_s!r} s")
        self.size = int(min(size, 1e15))
        self.window_s = window_s
        guard = max(_GUARD * window_s, min(_GUARD_FLOOR_S, 0.2 * window_s))
        self._gap = window_s + guard
        self._room = min(_ROOM_S, window_s / 20)
        last = self._next - self._even
        if self.size > _LONGEST_LOG:
            # A window holds at most (window + room) / spacing + 1 evenly spaced starts.
            self._even = self._dense = (self._gap + self._room) / (self.size - 1)
            self._log = None
        else:
            self._even = self._gap / self.size
            self._dense = _CATCH_UP * self._even
            if self._log is None:
                self._log = deque()
        self._next = last + self._even

    def wait(self, now: float) -> float:
        """Seconds until the next start is allowed; 0.0 = now."""
        wait = self._next - self._room - now
        log = self._log
        if log is not None:
            spare = len(log) - self.size
            if spare >= 0:
                held = log[spare] + self._gap - now
                if held > wait:
                    wait = held
        return wait if wait > 0.0 else 0.0

    def take(self, now: float) -> None:
        """A call starts at *now*."""
        place = self._next if self._next > now else now
        log = self._log
        if log is None:
            self._next = place + self._even
            return
        spare = len(log) - self.size
        # The start that held this one back is hardly older than it must be: the caller is saturated.
        saturated = spare >= 0 and now - log[spare] < 1.5 * self._gap
        self._next = place + (self._dense if saturated else self._even)
        log.append(now)
        while len(log) > self.size:
            log.popleft()

    def left(self, now: float) -> int:
        """Starts that the window of the last *window_s* seconds has left; *size* where no log is kept."""
        used = 0
        for start in reversed(self._log or ()):
            if start <= now - self.window_s:
                break
            used += 1
        return max(0, self.size - used)
