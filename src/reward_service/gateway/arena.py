"""One bounded piece of memory that every scorer process on this node maps: decoded images live here.

It is an anonymous memory file (memfd), passed to each process once over its unix socket. It needs no room in
/dev/shm, has no name that could be left behind, and the kernel frees it when the last process is gone.
"""

from __future__ import annotations

import bisect
import mmap
import os
import threading

PAGE = 4096


class Arena:
    """A first-fit allocator over `capacity` bytes; thread-safe.

    The capacity is virtual: pages exist once they are written, and `trim` gives them back.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(PAGE, capacity // PAGE * PAGE)
        self.used = 0
        self.peak = 0
        self._fd = os.memfd_create("reward-service", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, self.capacity)
        # Scorer processes get this descriptor: they can read what is shared, never change it.
        self.read_only_fd = os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)
        self._map = mmap.mmap(self._fd, self.capacity)
        self.view = memoryview(self._map)
        # Free spans, by offset; neighbours are always merged.
        self._offsets: list[int] = [0]
        self._lengths: list[int] = [self.capacity]
        self._touched = 0
        self._lock = threading.Lock()

    @staticmethod
    def rounded(size: int) -> int:
        """Bytes that a block of *size* takes."""
        return max(PAGE, -(-size // PAGE) * PAGE)

    def allocate(self, size: int) -> int | None:
        """Offset of a block of *size* bytes, or None when there is no room for it now."""
        need = self.rounded(size)
        with self._lock:
            for index, length in enumerate(self._lengths):
                if length < need:
                    continue
                offset = self._offsets[index]
                if length == need:
                    del self._offsets[index], self._lengths[index]
                else:
                    self._offsets[index] += need
                    self._lengths[index] -= need
                self.used += need
                self.peak = max(self.peak, self.used)
                self._touched = max(self._touched, offset + need)
                return offset
        return None

    def free(self, offset: int, size: int) -> None:
        """Return a block; *size* as given to `allocate`."""
        need = self.rounded(size)
        with self._lock:
            index = bisect.bisect_left(self._offsets, offset)
            self.used -= need
            end = offset + need
            joins_next = index < len(self._offsets) and self._offsets[index] == end
            joins_last = index > 0 and self._offsets[index - 1] + self._lengths[index - 1] == offset
            if joins_last and joins_next:
                self._lengths[index - 1] += need + self._lengths[index]
                del self._offsets[index], self._lengths[index]
            elif joins_last:
                self._lengths[index - 1] += need
            elif joins_next:
                self._offsets[index] = offset
                self._lengths[index] += need
            else:
                self._offsets.insert(index, offset)
                self._lengths.insert(index, need)

    def trim(self) -> int:
        """Give the pages back when nothing is allocated; bytes released at most."""
        with self._lock:
            if self.used or not self._touched:
                return 0
            released, self._touched = self._touched, 0
            self._map.madvise(mmap.MADV_REMOVE, 0, released)
            return released

    def close(self) -> None:
        """Unmap and close; processes that still map it keep their view."""
        self.view.release()
        self._map.close()
        os.close(self.read_only_fd)
        os.close(self._fd)
