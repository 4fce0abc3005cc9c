"""Compares every scorer with the official package, each in an environment of its own: `make parity`.

For each `tests/parity/<name>.py`: builds the environment of `<name>.txt` on top of `base.txt`, writes the tiny
checkpoint of that name, runs the script in the environment, and stores what it printed as the reference that the
ordinary tests compare with. Ends with a table and `docs/fidelity.md`.

    python tests/parity/run.py [NAME…]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REFERENCES = ROOT / "tests" / "reward_service" / "scorers" / "reference"
PAGE = ROOT / "docs" / "fidelity.md"
TABLE = re.compile(r"(<!-- table -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run")
    parser.add_argument("names", nargs="*", metavar="NAME", default=names, help=f"(all: {', '.join(names)})")
    parser.add_argument(
        "--environments", type=Path, default=ROOT / ".parity", help="where they are built (%(default)s)"
    )
    args = parser.parse_args()
    os.environ["REWARD_SERVICE_ENV_DIR"] = str(args.environments)
    os.environ["HF_HUB_OFFLINE"] = "1"
    failed = [name for name in args.names if not _compare(name, args.environments)]
    PAGE.write_text(TABLE.sub(rf"\1{_table()}\2", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(_table())
    print(f"failed: {', '.join(failed)}" if failed else "all references are up to date")
    return 1 if failed else 0


def _compare(name: str, environments: Path) -> bool:
    """Run one official package and store its numbers; False when it cannot be had or run here."""
    print(f"== {name}", flush=True)
    try:
        python = _environment(name, environments)
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = Path(folder) / name
            importlib.import_module(f"reward_service.testing.tiny.{name}").build(checkpoint)
            answer = _run(python, name, checkpoint)
    except (subprocess.CalledProcessError, RuntimeError) as error:
        print(f"{name}: {error}", flush=True)
        return False
    path = REFERENCES / f"{name}.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"tolerance": 1e-4}
    path.write_text(json.dumps({**kept, **answer}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return True


def _environment(name: str, environments: Path) -> Path:
    """The interpreter of the environment of `<name>.txt`."""
    from reward_service.workers.environments import ensure_environment

    requirements = HERE / f"{name}.txt"
    other = re.search(r"^# python: (\S+)", requirements.read_text(encoding="utf-8"), re.MULTILINE)
    base = (
        _base(environments, f"python{other[1]}", None)
        if other
        else _base(environments, sys.executable, HERE / "base.txt")
    )
    return ensure_environment(requirements, base_python=base, progress=lambda line: print(f"  {line}", flush=True))


def _base(environments: Path, interpreter: str, requirements: Path | None) -> Path:
    """An environment that others are layered on: torch and torchvision, or nothing for another Python."""
    folder = environments / f"base-{Path(interpreter).name}"
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return python
    print(f"  building {folder.name}", flush=True)
    subprocess.run([interpreter, "-m", "venv", folder], check=True)
    if requirements is not None:
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
    (folder / "complete").touch()
    return python


def _run(python: Path, name: str, checkpoint: Path) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [python, HERE / f"{name}.py", checkpoint],
        cwd=checkpoint.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"the script ended with {done.returncode}:\n{done.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def _table() -> str:
    """One row per stored reference: what it was computed with, on how many cases, and how far ours may be."""
    rows = ["| scorer | reference | cases | tolerance |", "|---|---|---|---|"]
    for path in sorted(REFERENCES.glob("*.json")):
        stored = json.loads(path.read_text(encoding="utf-8"))
        packages = ", ".join(f"{package} {number}" for package, number in stored["packages"].items())
        rows.append(f"| `{path.stem}` | {packages} | {len(stored['values'])} | {stored['tolerance']:g} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
