"""The program as a whole: commands, exit codes, messages, what it imports and what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from reward_service import __version__

HEAVY = ("pydantic", "ray", "fastapi", "numpy", "uvicorn", "torch", "pyarrow", "matplotlib", "yaml")

WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
from reward_service.cli import main
raise SystemExit(main({argv!r}))
"""


def test_version(run):
    """--version prints the package's version."""
    ran = run("--version")
    assert (ran.code, ran.out.strip()) == (0, f"reward-service {__version__}")


@pytest.mark.parametrize("command", ["serve", "check", "rewards", "demo", "score", "bench"])
def test_help(run, command):
    """Every command is listed by --help and explains itself."""
    assert command in run("--help").out
    ran = run(command, "--help")
    assert ran.code == 0
    assert f"reward-service {command}" in ran.out


@pytest.mark.parametrize("argv", [(), ("servee",), ("check",), ("serve", "--port", "70000", "--config", "x")])
def test_usage(run, argv):
    """Wrong usage is exit code 2 with a message on stderr."""
    ran = run(*argv)
    assert ran.code == 2
    assert "error:" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("before", [(), ("--log-level", "info"), ("--log-level=info",)])
def test_without_a_command_it_serves(run, before):
    """`reward-service --config FILE` is `reward-service serve --config FILE`."""
    ran = run(*before, "--config", "nowhere.yaml")
    assert ran == run("serve", "--config", "nowhere.yaml")
    assert ran.code == 2
    assert "no configuration file 'nowhere.yaml'" in ran.err


def test_module_and_problems_of_a_config(python, tmp_path):
    """`python -m reward_service --config` lists every problem, without a traceback, and exits 2."""
    config = tmp_path / "bad.yaml"
    config.write_text("rewards:\n  - {name: a, scorer: ocr, num_gpu: 1}\n  - {name: a, scorer: ocr}\n")
    ran = python("-m", "reward_service", "--config", config)
    assert ran.code == 2
    assert [line.split(": ")[0] for line in ran.err.splitlines()] == [f"{config}:2", f"{config}:3"]
    assert "did you mean 'num_gpus'?" in ran.err


def test_blank_host(run, tmp_path):
    """A host that is no address is wrong usage, found before anything starts."""
    config = tmp_path / "good.yaml"
    config.write_text("rewards: [{name: a, scorer: jpeg_compressibility, num_gpus: 0}]")
    ran = run("serve", "--config", config, "--host", " ")
    assert ran.code == 2
    assert "--host is blank" in ran.err


def test_console_scripts():
    """Both names of the program lead to the same function."""
    scripts = entry_points(group="console_scripts")
    targets = {scripts[name].value for name in ("reward-service", "unirl-reward-service")}
    assert targets == {"reward_service.cli:main"}


def test_imports_are_light(python):
    """Importing the program, and its help, need the base packages only."""
    code = (
        "import sys; from reward_service.cli import main\n"
        "for command in ('score', 'bench', 'demo', 'serve', 'check', 'rewards'): main([command, '--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    assert python("-c", code).err.strip() == "[]"


@pytest.mark.parametrize(
    ("argv", "missing", "extra"),
    [
        (["check", "x.yaml"], ["pydantic"], "server"),
        (["serve", "--config", "x.yaml"], ["ray", "uvicorn"], "server"),
        (["demo"], ["skimage"], "demo"),
        (["score", "in.parquet", "-o", "o.jsonl", "--rewards", "a", "--url", "http://x"], ["pyarrow"], "data"),
        (
            ["score", "in.jsonl", "-o", "o.jsonl", "--rewards", "a", "--url", "http://x", "--summary", "s"],
            ["matplotlib"],
            "plot",
        ),
        (["bench", "--url", "http://x", "--concurrency", "1", "--plot", "a.png"], ["matplotlib"], "plot"),
    ],
)
def test_missing_extra(python, tmp_path, monkeypatch, argv, missing, extra):
    """A command that needs more than the base packages names the extra, and exits 2."""
    monkeypatch.chdir(tmp_path)
    for name in ("in.parquet", "in.jsonl", "x.yaml"):
        (tmp_path / name).touch()
    ran = python("-c", WITHOUT.format(missing=missing, argv=argv))
    assert ran.code == 2
    assert f"pip install 'reward-service[{extra}]'" in ran.err
    assert missing[0] in ran.err
    assert "Traceback" not in ran.err


def test_closed_pipe():
    """A reader that goes away early ends the program without a traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "reward_service", "rewards"],
        stdout=writing, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(writing)
    assert done.returncode == 1
    assert done.stderr == ""
