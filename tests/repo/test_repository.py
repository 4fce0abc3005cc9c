"""Promises about the repository itself: what imports what, how long modules are, that links lead somewhere."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
MODULES = sorted(SRC.rglob("*.py"))
# What a scorer process loads before its scorer does; see docs/ARCHITECTURE.md.
SCORER_SIDE = [
    SRC / "reward_service/errors.py",
    *sorted((SRC / "reward_service/scorers").glob("*.py")),
    *sorted((SRC / "reward_service/media").glob("*.py")),
    *(SRC / f"reward_service/workers/{name}.py" for name in ("bootstrap", "process", "protocol", "items", "batch")),
]
# orjson, simplejpeg and pybase64 are used where an environment has them.
SCORER_SIDE_PACKAGES = {"PIL", "numpy", "orjson", "simplejpeg", "pybase64", "reward_service"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_modules_open_with_a_sentence_and_stay_short(path: Path) -> None:
    """Every module says what lives in it, in at most 400 lines."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    if text.strip():
        assert ast.get_docstring(ast.parse(text))


@pytest.mark.parametrize("path", SCORER_SIDE, ids=name_of)
def test_the_scorer_side_runs_in_any_environment(path: Path) -> None:
    """What a scorer process loads parses on Python 3.10 and imports only the standard library, Pillow and numpy."""
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    top = {name.partition(".")[0] for node in tree.body for name in imported(node)}
    foreign = top - set(sys.stdlib_module_names) - SCORER_SIDE_PACKAGES - {""}
    assert not foreign


def imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return ["" if node.level else node.module or ""]
    if isinstance(node, ast.Try):
        return [name for inner in node.body for name in imported(inner)]
    return []


def test_the_callers_side_needs_no_server_package() -> None:
    """Importing the SDK, the command line and qreward loads none of the server's packages."""
    heavy = ("torch", "ray", "fastapi", "transformers", "pydantic", "numpy", "uvicorn", "simplejpeg")
    code = (
        "import sys, qreward, reward_service.client, reward_service.cli\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_console_scripts_lead_to_functions() -> None:
    """Both console scripts exist and name the same function."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts == {"reward-service": "reward_service.cli:main", "unirl-reward-service": "reward_service.cli:main"}
    from reward_service.cli import main

    assert callable(main)


def documents() -> list[Path]:
    return [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("path", documents(), ids=name_of)
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    """A relative link in the documentation names a file that is there."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{name_of(path)} links to {target}"
