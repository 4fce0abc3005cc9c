"""Cutting a long call into requests that the server accepts; pure."""

from __future__ import annotations

from collections.abc import Sequence


def split(sizes: Sequence[int], max_items: int | None, max_bytes: int) -> list[range]:
    """Consecutive ranges over *sizes*, each within *max_items* and *max_bytes*.

    Greedy, so the number of ranges is minimal. An entry over *max_bytes* stands alone.
    """
    ranges: list[range] = []
    start = total = 0
    for index, size in enumerate(sizes):
        full = max_items is not None and index - start >= max_items
        if index > start and (full or total + size > max_bytes):
            ranges.append(range(start, index))
            start, total = index, 0
        total += size
    if start < len(sizes):
        ranges.append(range(start, len(sizes)))
    return ranges
