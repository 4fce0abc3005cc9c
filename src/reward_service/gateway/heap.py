"""glibc's allocator, told what a gateway is: large buffers come and go all the time."""

from __future__ import annotations

import contextlib
import ctypes

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
# The most that glibc takes for a threshold on 64-bit machines.
THRESHOLD_BYTES = 32 * 1024 * 1024


def keep_freed_memory() -> None:
    """Reuse freed buffers instead of returning them to the kernel, which would clear every page anew.

    `trim` gives the memory back. Does nothing with another C library.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, 8 * THRESHOLD_BYTES)


def trim() -> None:
    """Return what is free to the kernel."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
