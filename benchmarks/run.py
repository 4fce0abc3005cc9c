"""Measures the service against the direct loop, both on this machine, in turns.

    python benchmarks/run.py                            # starts the service, about ten minutes
    python benchmarks/run.py --quick --cases n64,x8     # a look, under a minute
    python benchmarks/run.py --cases 'n*,x*'            # sweeps over 1 to 200 callers
    python benchmarks/run.py --url http://127.0.0.1:9000
    python benchmarks/run.py --server 'python other.py --port {port}'

Another implementation must serve rewards of the names in benchmarks/config.yaml. Prints a table, and one line
of JSON at the end; the whole record goes to --out. Ends with 1 when an answer was not complete and right.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import serving
from bodies import Body, build
from cases import STANDARD, Case, parse_cases
from load import drive
from meter import Cpu, machine, own_cpu
from summary import summarise
from table import show

DIRECT = Path(__file__).with_name("direct.py")
Record = dict[str, Any]


def main() -> int:
    """Command line."""
    args = _arguments()
    try:
        cases = parse_cases(args.cases)
        with tempfile.TemporaryDirectory(prefix="reward-bench-") as name:
            record = measure(cases, Path(name), args)
    except (serving.NoService, ValueError, ImportError) as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 2
    if args.out is not None:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    summary = summarise(record)
    show(summary)
    print(json.dumps(summary, ensure_ascii=False))
    return 1 if any(case["bad"] for case in summary["cases"].values()) else 0


def measure(cases: Sequence[Case], folder: Path, args: argparse.Namespace) -> Record:
    """Every case *args.reps* times, each time in the opposite order, so that no side is always first."""
    shapes = {case.shape.letter: case.shape for case in cases}
    bodies = {letter: build(shape, folder) for letter, shape in shapes.items()}
    found: dict[str, dict[str, list[Record]]] = {case.name: {"service": [], "direct": []} for case in cases}
    steps = [(case, side) for case in cases for side in ("direct", "service") if args.direct or side == "service"]
    with serving.chosen(args, folder) as service:
        for rep in range(args.reps):
            for case, side in steps if rep % 2 == 0 else reversed(steps):
                of_shape = bodies[case.shape.letter]
                if side == "direct":
                    one = run_direct(case, of_shape, args)
                else:
                    one = run_service(service, case, of_shape, args.seconds)
                found[case.name][side].append(one)
                print(f"{rep + 1}/{args.reps} {case.name:<5} {_brief(side, one)}", file=sys.stderr)
    return {"machine": machine(), "seconds": args.seconds, "reps": args.reps, "cases": found}


def run_direct(case: Case, bodies: Sequence[Body], args: argparse.Namespace) -> Record:
    """The direct loop in a process of its own; see direct.py."""
    options = {"--seconds": args.seconds, "--rewards": ",".join(case.shape.rewards), "--config": args.config}
    words = [f"{name}={value}" for name, value in options.items()]
    words += [str(body.path) for body in bodies]
    done = subprocess.run([sys.executable, DIRECT, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise serving.NoService(f"the direct loop failed:\n{done.stderr[-2000:]}")
    measured: Record = json.loads(done.stdout.splitlines()[-1])
    return measured


def run_service(service: serving.Service, case: Case, bodies: Sequence[Body], seconds: float) -> Record:
    """One load on the service, with what it cost; CPU milliseconds are per item."""
    meter = service.meter
    if meter is None:
        return drive(service.url, case, bodies, seconds).as_dict()
    before, own = Cpu(), 0.0

    def clock_starts() -> None:
        nonlocal before, own
        meter.reset_peak()
        before, own = meter.cpu(), own_cpu()

    load = drive(service.url, case, bodies, seconds, clock_starts=clock_starts)
    used, client = meter.cpu().since(before), own_cpu() - own
    memory = meter.memory()
    items = max(1, load.requests * case.shape.items)
    others = used.machine - used.gateway - used.replicas - used.ray - client
    return {
        **load.as_dict(),
        "gateway_cpu_ms": round(1e3 * used.gateway / items, 3),
        "replicas_cpu_ms": round(1e3 * used.replicas / items, 3),
        "ray_cpu_ms": round(1e3 * used.ray / items, 3),
        "gateway_peak_mb": memory.peak,
        "gateway_pss_mb": memory.pss,
        # Cores that neither the service nor this program kept busy.
        "other_cores": round(max(0.0, others) / load.wall_s, 2),
    }


def _brief(side: str, one: Record) -> str:
    if side == "direct":
        return "direct   " + "  ".join(
            f"{codec} {by['1']['item_s']:.0f}, {by['2']['item_s']:.0f}/s" for codec, by in one.items()
        )
    cpu = one.get("gateway_cpu_ms", 0.0) + one.get("replicas_cpu_ms", 0.0)
    return f"service  {one['item_s']:.0f}/s  p50 {one['p50_ms']:.1f} ms  CPU {cpu:.2f} ms  {one['bad'] or ''}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--cases", default=STANDARD, help=f"shapes and callers (default {STANDARD})")
    parser.add_argument("--quick", action="store_true", help="2 seconds a case, once")
    parser.add_argument("--reps", type=int, help="rounds over all cases (default 3)")
    parser.add_argument("--seconds", type=float, help="of load per case and round (default 5)")
    parser.add_argument("--no-direct", dest="direct", action="store_false", help="leave out the yardstick")
    parser.add_argument("--out", type=Path, help="write the whole record as JSON")
    serving.add_arguments(parser)
    args = parser.parse_args()
    args.reps = args.reps or (1 if args.quick else 3)
    args.seconds = args.seconds or (2.0 if args.quick else 5.0)
    return args


if __name__ == "__main__":
    raise SystemExit(main())
