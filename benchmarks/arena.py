"""Cost of a place for one decoded image: a block of the arena, a recycled segment, a fresh segment in /dev/shm.

    python benchmarks/arena.py [--size 512] [--rounds 2000]

Each round takes a place, writes size × size × 3 bytes, and gives it back. Prints a table of medians of process CPU
time per round over five repetitions, and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from reward_service.gateway.arena import Arena

SEGMENT = "/dev/shm/reward-service-benchmark"


def in_arena(pixels: bytes) -> Callable[[], None]:
    arena = Arena(64 * len(pixels))

    def once() -> None:
        offset = arena.allocate(len(pixels))
        assert offset is not None
        arena.view[offset : offset + len(pixels)] = pixels
        arena.free(offset, len(pixels))

    return once


def in_recycled_segment(pixels: bytes) -> Callable[[], None]:
    fd = os.open(SEGMENT, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, len(pixels))
    view = memoryview(mmap.mmap(fd, len(pixels)))
    os.close(fd)
    os.unlink(SEGMENT)

    def once() -> None:
        view[:] = pixels

    return once


def in_fresh_segment(pixels: bytes) -> Callable[[], None]:
    def once() -> None:
        fd = os.open(SEGMENT, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(fd, len(pixels))
        with mmap.mmap(fd, len(pixels)) as mapped:
            mapped[:] = pixels
        os.close(fd)
        os.unlink(SEGMENT)

    return once


def cpu_us(once: Callable[[], None], rounds: int) -> float:
    for _ in range(rounds // 10 + 1):
        once()
    began = time.process_time()
    for _ in range(rounds):
        once()
    return 1e6 * (time.process_time() - began) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of a place for one decoded image.")
    parser.add_argument("--size", type=int, default=512, help="side of the square image in pixels")
    parser.add_argument("--rounds", type=int, default=2000)
    options = parser.parse_args()
    pixels = os.urandom(options.size * options.size * 3)
    ways = {"arena": in_arena, "recycled segment": in_recycled_segment, "fresh segment": in_fresh_segment}
    runs: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(5):
        order = list(ways) if repetition % 2 == 0 else list(ways)[::-1]
        for name in order:
            runs[name].append(cpu_us(ways[name](pixels), options.rounds))
    medians = {name: round(statistics.median(values), 1) for name, values in runs.items()}
    table = Table("place", "CPU µs", "× arena", title=f"{options.size} × {options.size} × 3 bytes")
    for name, value in medians.items():
        table.add_row(name, f"{value:.1f}", f"{value / medians['arena']:.2f}")
    Console().print(table)
    print(json.dumps({"benchmark": "arena", "size": options.size, "cpu_us": medians}))


if __name__ == "__main__":
    main()
