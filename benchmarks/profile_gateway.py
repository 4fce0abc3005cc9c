"""Where the gateway's time goes under one load, in one command.

    python benchmarks/profile_gateway.py --case n64
    python benchmarks/profile_gateway.py --case y8 --flame /tmp/y8.svg      # needs py-spy

First an undisturbed load: CPU of each of the gateway's threads, per item. Then the same load with cProfile switched
on in the event loop's thread: the functions that cost most by themselves, per item. cProfile makes Python calls
look dearer than they are, so read its times as shares. It cannot see the decode threads; --flame can.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import serving
from bodies import Body, build
from cases import Case, parse_cases
from load import drive
from rich.table import Table
from table import stdout

INSIDE = "--inside"
COMMAND = f"{{python}} {__file__} {INSIDE} {{folder}} --config {{config}}"
# Threads below this are idle.
LEAST_CPU_MS = 0.002
WRITTEN_S = 20.0


def inside(folder: Path, arguments: list[str]) -> None:
    """Be the service; SIGUSR1 switches the profiler on, SIGUSR2 off, which writes the profile to *folder*."""
    profiler = cProfile.Profile()

    def off(number: int, frame: object) -> None:
        profiler.disable()
        profiler.dump_stats(folder / "partial")
        # Renamed when complete, so that the reader sees all of it.
        (folder / "partial").rename(folder / "profile")

    signal.signal(signal.SIGUSR1, lambda number, frame: profiler.enable())
    signal.signal(signal.SIGUSR2, off)
    sys.argv = ["reward_service", *arguments]
    runpy.run_module("reward_service", run_name="__main__", alter_sys=True)


def threads_under(
    pid: int, url: str, case: Case, bodies: Sequence[Body], seconds: float
) -> tuple[list[tuple[str, float]], float]:
    """CPU ms per item of the gateway's busy threads and of all together, and items per second."""
    gateway = psutil.Process(pid)
    before: dict[int, float] = {}

    def clock_starts() -> None:
        before.update({thread.id: thread.user_time + thread.system_time for thread in gateway.threads()})

    load = drive(url, case, bodies, seconds, clock_starts=clock_starts)
    items = max(1, load.requests * case.shape.items)
    used = [
        (
            "event loop" if thread.id == pid else f"thread {thread.id - pid:+d}",
            1e3 * (thread.user_time + thread.system_time - before.get(thread.id, 0.0)) / items,
        )
        for thread in gateway.threads()
    ]
    used.sort(key=lambda pair: -pair[1])
    busy = [(name, cpu) for name, cpu in used if cpu > LEAST_CPU_MS]
    return [*busy, ("all", sum(cpu for _, cpu in used))], load.item_s


def functions_under(
    pid: int, url: str, case: Case, bodies: Sequence[Body], seconds: float, folder: Path
) -> tuple[pstats.Stats, int]:
    """The event loop's profile under the load, and the number of items in it."""
    load = drive(url, case, bodies, seconds, clock_starts=lambda: os.kill(pid, signal.SIGUSR1))
    os.kill(pid, signal.SIGUSR2)
    written, until = folder / "profile", time.monotonic() + WRITTEN_S
    while not written.exists():
        if time.monotonic() > until:
            raise serving.NoService(f"the gateway wrote no profile within {WRITTEN_S:g} s")
        time.sleep(0.1)
    return pstats.Stats(str(written)), max(1, load.requests * case.shape.items)


def show_functions(stats: pstats.Stats, items: int, top: int) -> None:
    """Print the functions that cost most by themselves."""
    table = Table("function", title="Event loop under cProfile, per item", title_justify="left")
    for head in ("calls", "own µs", "with callees µs"):
        table.add_column(head, justify="right")
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])[:top]  # type: ignore[attr-defined]
    for (file, line, name), (_, calls, own, total, _) in rows:
        where = name if file == "~" else f"{short(file)}:{line} {name}"
        table.add_row(where, f"{calls / items:.2f}", f"{1e6 * own / items:.1f}", f"{1e6 * total / items:.1f}")
    stdout().print(table)


def short(file: str) -> str:
    """The last two parts of a path."""
    return "/".join(Path(file).parts[-2:])


def flame(pid: int, url: str, case: Case, bodies: Sequence[Body], seconds: float, file: Path) -> None:
    """A flame graph of all threads, native frames included, by py-spy."""
    spy = shutil.which("py-spy")
    if spy is None:
        raise serving.NoService("--flame needs py-spy on the PATH; pip install py-spy")
    words = [spy, "record", "--native", "--threads", "--pid", str(pid), "--duration", f"{seconds:.0f}", "-o", str(file)]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as recording:
        drive(url, case, bodies, seconds + 1.0)
        _, told = recording.communicate()
    if recording.returncode:
        raise serving.NoService(f"py-spy failed: {told.strip()[-500:]}")
    print(f"flame graph: {file}", file=sys.stderr)


def main() -> int:
    """Command line."""
    if INSIDE in sys.argv[1:2]:
        inside(Path(sys.argv[2]), sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--case", default="n64", help="as for run.py")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--top", type=int, default=30, help="functions to show")
    parser.add_argument("--flame", type=Path, metavar="FILE.svg", help="write a flame graph too")
    parser.add_argument("--config", type=Path, default=serving.CONFIG)
    args = parser.parse_args()
    try:
        case = parse_cases(args.case)[0]
        with tempfile.TemporaryDirectory(prefix="reward-bench-") as name:
            profile(case, Path(name), args)
    except (serving.NoService, ValueError, ImportError) as error:
        print(f"profile_gateway.py: {error}", file=sys.stderr)
        return 2
    return 0


def profile(case: Case, folder: Path, args: argparse.Namespace) -> None:
    """Start the service, load it twice or three times, print."""
    bodies = build(case.shape, folder)
    command = COMMAND.replace("{folder}", str(folder))
    with serving.started(command, args.config, serving.port_or_free(None), folder) as service:
        assert service.meter is not None
        pid = service.meter.pid
        threads, item_s = threads_under(pid, service.url, case, bodies, args.seconds)
        stats, items = functions_under(pid, service.url, case, bodies, args.seconds, folder)
        if args.flame is not None:
            flame(pid, service.url, case, bodies, args.seconds, args.flame)
    table = Table("thread", title=f"{case.name}, {item_s:.0f} items/s", title_justify="left")
    table.add_column("CPU ms per item", justify="right")
    for thread, cpu in threads:
        table.add_row(thread, f"{cpu:.3f}")
    stdout().print(table)
    show_functions(stats, items, args.top)
    by_thread = {thread: round(cpu, 3) for thread, cpu in threads}
    print(json.dumps({"case": case.name, "item_s": item_s, "threads_cpu_ms": by_thread}))


if __name__ == "__main__":
    raise SystemExit(main())
