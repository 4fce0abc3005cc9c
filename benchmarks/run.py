"""Measures the service against the direct loop, both on this machine, in turns.

    python benchmarks/run.py                            # starts the service, about ten minutes
    python benchmarks/run.py --quick --cases n64,x8     # a look, under a minute
    python benchmarks/run.py --cases 'n*,x*'            # sweeps over 1 to 200 callers
    python benchmarks/run.py --url http://127.0.0.1:9000
    python benchmarks/run.py --server 'python other.py --port {port}'

Another implementation must serve rewards of the names in benchmarks/config.yaml. Prints a table, and one line of
JSON at the end; the whole record goes to --out. Ends with 1 when an answer was not complete and right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import serving
from bodies import Body, build
from cases import STANDARD, Case, parse_cases
from load import drive
from meter import Cpu
from summary import summarise
from table import show

HERE = Path(__file__).parent
CONFIG = HERE / "config.yaml"
DIRECT = HERE / "direct.py"
Record = dict[str, Any]


def main() -> int:
    """Command line."""
    args = _arguments()
    try:
        cases = parse_cases(args.cases)
        with (
            tempfile.TemporaryDirectory(prefix="reward-bench-") as name,
            _service(args, Path(name)) as service,
        ):
            record = measure(service, cases, Path(name), args)
    except (serving.NoService, ValueError, ImportError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    if args.out is not None:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    summary = summarise(record)
    show(summary)
    print(json.dumps(summary))
    return 1 if any(case["bad"] for case in summary["cases"].values()) else 0


def measure(
    service: serving.Service, cases: Sequence[Case], folder: Path, args: argparse.Namespace
) -> Record:
    """Every case *args.reps* times, in an order that turns around each time; what is first has no advantage."""
    letters = {case.shape.letter: case.shape for case in cases}
    bodies = {letter: build(shape, folder) for letter, shape in letters.items()}
    found: dict[str, dict[str, list[Record]]] = {case.name: {"service": [], "direct": []} for case in cases}
    for rep in range(args.reps):
        for case in cases if rep % 2 == 0 else reversed(cases):
            sides = ("direct", "service") if args.direct else ("service",)
            for side in sides if rep % 2 == 0 else reversed(sides):
                seconds = args.seconds
                if side == "direct":
                    one = run_direct(case, bodies[case.shape.letter], seconds)
                else:
                    one = run_service(service, case, bodies[case.shape.letter], seconds)
                found[case.name][side].append(one)
                print(
                    f"[{rep + 1}/{args.reps}] {case.name:<5} {side:<8} {_brief(side, one)}", file=sys.stderr
                )
    return {"machine": machine(), "seconds": args.seconds, "reps": args.reps, "cases": found}


def run_direct(case: Case, bodies: Sequence[Body], seconds: float) -> Record:
    """The direct loop in a process of its own; see direct.py."""
    words = [
        sys.executable,
        str(DIRECT),
        "--seconds",
        f"{seconds:g}",
        "--rewards",
        ",".join(case.shape.rewards),
    ]
    words += [str(body.path) for body in bodies]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise serving.NoService(f"the direct loop failed:\n{done.stderr[-2000:]}")
    measured: Record = json.loads(done.stdout.splitlines()[-1])
    return measured


def run_service(service: serving.Service, case: Case, bodies: Sequence[Body], seconds: float) -> Record:
    """One load on the service, with what it cost; CPU milliseconds are per item."""
    meter = service.meter
    if meter is None:
        return drive(service.url, case, bodies, seconds).as_dict()
    meter.reset_peak()
    before, own = meter.cpu(), _own_cpu()
    load = drive(service.url, case, bodies, seconds)
    used, client = meter.cpu().since(before), _own_cpu() - own
    memory = meter.memory()
    items = max(1, load.requests * case.shape.items)
    others = used.machine - client - _all_of(used)
    return {
        **load.as_dict(),
        "gateway_cpu_ms": round(1e3 * used.gateway / items, 3),
        "replicas_cpu_ms": round(1e3 * used.replicas / items, 3),
        "ray_cpu_ms": round(1e3 * used.ray / items, 3),
        "gateway_peak_mb": memory.peak,
        "gateway_pss_mb": memory.pss,
        # Cores that neither the service nor this program used: neighbours, the kernel's own work.
        "other_cores": round(max(0.0, others) / load.wall_s, 2),
    }


def machine() -> Record:
    """Where this was measured; nothing that identifies a host."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }


@contextlib.contextmanager
def _service(args: argparse.Namespace, folder: Path) -> Iterator[serving.Service]:
    if args.url is not None:
        yield serving.running(args.url, args.pid)
        return
    port = serving.port_or_free(args.port)
    with serving.started(args.server, args.config, port, folder) as service:
        yield service


def _own_cpu() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


def _all_of(cpu: Cpu) -> float:
    return cpu.gateway + cpu.replicas + cpu.ray


def _brief(side: str, one: Record) -> str:
    if side == "direct":
        return "  ".join(
            f"{codec} {by['1']['item_s']:.0f}, {by['2']['item_s']:.0f}/s" for codec, by in one.items()
        )
    cpu = one.get("gateway_cpu_ms", 0.0) + one.get("replicas_cpu_ms", 0.0)
    return f"{one['item_s']:.0f}/s  p50 {one['p50_ms']:.1f} ms  CPU {cpu:.2f} ms  {one['bad'] or ''}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--cases", default=STANDARD, help=f"shapes and callers (default {STANDARD})")
    parser.add_argument("--quick", action="store_true", help="2 seconds a case, once")
    parser.add_argument("--reps", type=int, help="rounds over all cases (default 3)")
    parser.add_argument("--seconds", type=float, help="of load per case and round (default 5)")
    parser.add_argument("--no-direct", dest="direct", action="store_false", help="leave out the yardstick")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", default=serving.OURS, metavar="CMD", help=f"default: {serving.OURS}")
    where.add_argument("--url", help="measure a service that runs already")
    parser.add_argument("--pid", type=int, help="with --url: its gateway, if it is not the listener")
    parser.add_argument("--config", type=Path, default=CONFIG, help="what to start the service with")
    parser.add_argument("--port", type=int, help="default: a free one")
    parser.add_argument("--out", type=Path, help="write the whole record as JSON")
    args = parser.parse_args()
    args.reps = args.reps or (1 if args.quick else 3)
    args.seconds = args.seconds or (2.0 if args.quick else 5.0)
    return args


if __name__ == "__main__":
    raise SystemExit(main())
