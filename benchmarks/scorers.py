"""What a scorer costs on top of its network, and how it compares with other ways to run the same weights.

    python benchmarks/scorers.py [SCORER…] [--batch 16] [--rounds 3] [--open-clip PYTHON] [--infinity PYTHON]

Weights are random, in the published architecture. Sides run in processes of their own and take turns within a
round; ratios are taken within a round, and their median is reported. PYTHON is an interpreter that has the package.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from scorer_checkpoints import CHECKPOINTS

from reward_service.models.clip_text import BPE_FILE

SIDES = Path(__file__).with_name("scorer_sides.py")
MOST_OVER_FORWARD = 1.15
NOTES = {
    "forward": "the network alone, pixels prepared before",
    "ours": "the scorer, all prompts different",
    "group": "the scorer, one prompt for the batch",
    "one": "the scorer, one item per call",
    "reference": "the published code's loop, one pair at a time",
    "open_clip": "open_clip used directly, batched",
    "infinity": "infinity_emb used directly, batched",
}


class Side:
    """One way to score, in a process that runs a pass when told to."""

    def __init__(self, name: str, python: str, scorer: str, checkpoint: Path, batch: int) -> None:
        self.name = name
        self.passes: list[dict[str, Any]] = []
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "src"), "HF_HUB_OFFLINE": "1"}
        command = [python, str(SIDES), name, scorer, str(checkpoint), str(batch)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, text=True, env=environment, **pipes)

    def run(self, keep: bool = True) -> None:
        """One pass; not kept while it warms up."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                if keep:
                    self.passes.append(json.loads(line))
                return
        raise SystemExit(f"the side {self.name} ended: run `{' '.join(map(str, self._process.args))}` to see why")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scorers", nargs="*", metavar="SCORER", default=list(CHECKPOINTS))
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--open-clip", metavar="PYTHON", help="interpreter with open_clip_torch")
    parser.add_argument("--infinity", metavar="PYTHON", help="interpreter with infinity_emb")
    parser.add_argument("--sides", nargs="+", help="only these")
    args = parser.parse_args()
    results = {name: _measure(name, args) for name in args.scorers}
    Console(width=110).print(_table(results, args))
    print(json.dumps(results))
    return 0


def _measure(scorer: str, args: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, _sides(scorer, Path(folder), args) as sides:
        for side in sides:
            side.run(keep=False)
        for number in range(args.rounds):
            for side in sides if number % 2 == 0 else reversed(sides):
                side.run()
        return {side.name: _summary(side, sides[0], args.batch) for side in sides}


@contextlib.contextmanager
def _sides(scorer: str, folder: Path, args: argparse.Namespace) -> Iterator[list[Side]]:
    build, names = CHECKPOINTS[scorer]
    build(folder, _vocabulary(args.open_clip))
    others = {"open_clip": args.open_clip, "infinity": args.infinity}
    pythons = {name: others.get(name, sys.executable) for name in names if args.sides is None or name in args.sides}
    sides = [Side(name, python, scorer, folder, args.batch) for name, python in pythons.items() if python]
    try:
        yield sides
    finally:
        for side in sides:
            side.stop()


def _vocabulary(open_clip: str | None) -> Path | None:
    """CLIP's own vocabulary, which open_clip brings."""
    if open_clip is None:
        return None
    code = "import importlib.util as u, pathlib as p; print(p.Path(u.find_spec('open_clip').origin).parent)"
    found = subprocess.run([open_clip, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    return Path(found) / BPE_FILE


def _summary(side: Side, base: Side, batch: int) -> dict[str, float]:
    def ratio(key: str) -> float:
        return statistics.median(mine[key] / theirs[key] for mine, theirs in zip(side.passes, base.passes, strict=True))

    return {
        "ms_per_item": statistics.median(one["s"] for one in side.passes) / batch * 1000,
        "cpu_ms_per_item": statistics.median(one["cpu"] for one in side.passes) / batch * 1000,
        "wall_ratio": ratio("s"),
        "cpu_ratio": ratio("cpu"),
    }


def _table(results: dict[str, Any], args: argparse.Namespace) -> Table:
    table = Table(title=f"batches of {args.batch}, medians of {args.rounds} rounds", title_justify="left")
    for head in ("scorer", "side", "ms/item", "CPU ms/item", "× forward", "× forward, CPU"):
        table.add_column(head, justify="left" if head in ("scorer", "side") else "right")
    for scorer, sides in results.items():
        for index, (name, row) in enumerate(sides.items()):
            over = f"{row['wall_ratio']:.2f}"
            if name == "ours":
                over += " ✓" if row["wall_ratio"] <= MOST_OVER_FORWARD else " ✗"
            table.add_row(
                scorer if index == 0 else "", NOTES[name], f"{row['ms_per_item']:.1f}",
                f"{row['cpu_ms_per_item']:.1f}", over, f"{row['cpu_ratio']:.2f}", end_section=index == len(sides) - 1,
            )  # fmt: skip
    return table


if __name__ == "__main__":
    sys.exit(main())
