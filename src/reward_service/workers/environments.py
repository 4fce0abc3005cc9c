"""One virtual environment per requirements file: built once on each node, on top of the base's packages.

A scorer process runs under the interpreter that `ensure_environment` returns. The folder
``<cache>/<stem>-<key>`` is an overlay: what the requirements file adds comes first, then everything
that the base environment (torch, for example) already has. Beside it lie ``.lock`` and ``.log``.
Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reward_service.errors import EnvironmentBuildError

_log = logging.getLogger(__name__)

ENV_DIR_VARIABLE = "REWARD_SERVICE_ENV_DIR"
DESCRIBED_PACKAGES = ("numpy", "torch", "torchvision", "transformers", "vllm", "onnxruntime", "pillow")

Progress = Callable[[str], None]

_FORM = "overlay/1"  # part of the key: changes when the same files lead to a different environment
_MARKER = "reward-service-ready.json"
# Sorts last, so that the overlay's own .pth files (its editable installs) come before the base.
_BASE_PTH = "zzz_reward_service_base.pth"
_WAIT_WORD_S = 5.0  # between two lines that say whom we wait for
_QUIET_WORD_S = 15.0  # after this long without a line of progress, say that pip still works
_POLL_S = 0.2
_ANSWER_TIMEOUT_S = 60.0
_TAIL_LINES = 15

_COMMENT = re.compile(r"(^|\s+)#.*$")
_OPTIONS = re.compile(r"#\s*pip-options:\s*(.*)$")
_INCLUDE = re.compile(r"(?:-r|-c|--requirement|--constraint)[\s=]*(.+)$")
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
_HEADLINES = (
    (re.compile(r"Collecting (.+?)(?: \(from .*)?$"), r"collecting \1"),
    (re.compile(r"Processing (?:.*?/)?([^/]+?)(?: \(from .*)?$"), r"collecting \1"),
    (re.compile(r"Downloading (?:\S*/)?(\S+ \(.+ [MG]B\))$"), r"downloading \1"),
    (re.compile(r"Building wheel for (\S+) .*started$"), r"building \1 from source"),
    # Only those that the file itself names: "(from -r FILE (line N))", not "(from other->-r FILE…)".
    (
        re.compile(r"Requirement already satisfied: (.+?) in .* \(from -r .* \(line \d+\)\) \((\S+)\)$"),
        r"\1: \2 is already there",
    ),
)

_PROBE = """
import importlib.util, json, os, site, sys, sysconfig
sites = ([site.getusersitepackages()] if site.ENABLE_USER_SITE else []) + site.getsitepackages()
sites = [path for path in sites if os.path.isdir(path)]
print(json.dumps({
    "python": sys.executable, "sites": sites, "has_pip": importlib.util.find_spec("pip") is not None,
    "identity": [os.path.realpath(sys.executable), sys.version, sysconfig.get_platform(), *sites]}))
"""

_DESCRIBE = """
import importlib.metadata, json, platform, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps({"python": platform.python_version(), "executable": sys.executable, "packages": found}))
"""

# Runs a module (pip, venv) that ends, compilers and all, soon after the process that asked for it.
# A parent-death signal would not do: it reaches the direct child only, and fires when the calling *thread*
# ends. The forked guard is there for Ray, which kills an actor's direct children and leaves theirs.
# `python -c` puts the working directory first on the path; a `json.py` there is not ours.
_FOLLOWER = """
import sys
if sys.path[0] == "":
    del sys.path[0]
import os, runpy, signal, threading, time
def follow(parent):
    while os.getppid() == parent:
        time.sleep(0.2)
    os.killpg(0, signal.SIGKILL)
me, guard = os.getpid(), os.fork()
if guard == 0:
    follow(me)
threading.Thread(target=follow, args=(int(sys.argv[1]),), daemon=True).start()
sys.argv = sys.argv[2:]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    os.kill(guard, signal.SIGKILL)
    os.waitpid(guard, 0)
"""


def ensure_environment(
    requirements: Path,
    *,
    cache_dir: Path | None = None,
    base_python: str = sys.executable,
    progress: Progress = _log.info,
) -> Path:
    """The interpreter of the environment that *requirements* describes; builds it when there is none.

    Same content (included files too) and same base: same environment, under *cache_dir*, else
    ``$REWARD_SERVICE_ENV_DIR``, else ``~/.cache/reward-service/envs``. Blocks until the environment is
    ready. Safe to call from any thread of several processes at once: one builds, the others wait.
    *progress* receives short lines for people, in the calling thread.

    Raises EnvironmentBuildError with the command to repeat by hand and the installer's last lines.
    """
    wanted = _read_requirements(Path(requirements).absolute())
    base = _Base(**_ask(base_python, _PROBE))
    folder = _cache_dir(cache_dir) / f"{wanted.path.stem}-{_key(wanted, base)}"
    if not _is_ready(folder):
        try:
            with _exclusive(folder, progress) as lock:
                # Another process may have finished it while this one waited for the lock.
                if not _is_ready(folder):
                    _Builder(folder, wanted, base, progress, lock, Path(f"{folder}.log")).build()
        except OSError as error:
            raise EnvironmentBuildError(
                f"cannot build an environment in {folder.parent}: {error}. Set {ENV_DIR_VARIABLE} to a "
                "writable folder with enough room on this node's own disk."
            ) from error
    return _python(folder)


def describe_environment(python: Path, packages: Sequence[str] = DESCRIBED_PACKAGES) -> dict[str, Any]:
    """``{"python": "3.11.7", "executable": …, "packages": {"numpy": "2.2.6", …}}`` as *python* sees it.

    Packages that are not installed are left out. Imports none of them. Raises EnvironmentBuildError when
    the interpreter does not answer within a minute.
    """
    return _ask(str(python), _DESCRIBE, *packages)


@dataclass(frozen=True)
class _Requirements:
    path: Path
    lines: tuple[str, ...]  # for pip; those of included files follow their mention
    options: tuple[str, ...]

    @property
    def names_local_paths(self) -> bool:
        lines = [line for line in (*self.lines, *self.options) if not _INCLUDE.match(line)]
        words = {word for line in lines for word in re.split(r"[\s=]+", line)}
        relative = [word for word in words if word and not os.path.isabs(word)]
        return any((self.path.parent / word).exists() for word in relative)


def _read_requirements(path: Path) -> _Requirements:
    lines = list(_lines(path, set(), ""))
    found = [match[1] for line in lines if (match := _OPTIONS.match(line))]
    try:
        options = tuple(word for text in found for word in shlex.split(text))
    except ValueError as error:
        raise EnvironmentBuildError(
            f"{path}: the line `# pip-options:` is no command line: {error}. Correct it."
        ) from error
    return _Requirements(path, tuple(line for line in lines if not _OPTIONS.match(line)), options)


def _lines(path: Path, seen: set[Path], where: str) -> Iterator[str]:
    if path.resolve() in seen:
        return
    seen.add(path.resolve())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentBuildError(
            f"cannot read the requirements file {path}{where}: {error}. Correct the path or the file."
        ) from error
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip() if _OPTIONS.match(raw.strip()) else _COMMENT.sub("", raw).strip()
        if line:
            yield line
        include = _INCLUDE.match(line)
        if include and "://" not in line:
            inner = path.parent / os.path.expandvars(include[1].strip("'\""))
            yield from _lines(inner, seen, f", included by {path}, line {number}")


@dataclass(frozen=True)
class _Base:
    python: str
    identity: list[str]
    sites: list[str]  # in the order of its sys.path
    has_pip: bool


def _ask(python: str, code: str, *args: str) -> dict[str, Any]:
    """The JSON object that *code* prints as its last line."""
    command = [os.path.abspath(shutil.which(python) or python), "-c", code, *args]
    try:
        answer = subprocess.run(
            command,
            cwd="/",  # no module of the user's lies there to shadow the standard library's
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_ANSWER_TIMEOUT_S,
            check=True,
        )
        return dict(json.loads(answer.stdout.splitlines()[-1]))
    except subprocess.CalledProcessError as error:
        reason = f"exited with {error.returncode}: {error.stderr[-1000:].strip()}"
    except subprocess.TimeoutExpired:
        reason = f"gave no answer in {_ANSWER_TIMEOUT_S:.0f} s"
    except (OSError, ValueError, IndexError) as error:
        reason = f"failed: {error}"
    raise EnvironmentBuildError(f"the interpreter {command[0]} {reason}. Run it by hand to see why.")


def _cache_dir(given: Path | None) -> Path:
    chosen = given or os.environ.get(ENV_DIR_VARIABLE) or Path.home() / ".cache" / "reward-service" / "envs"
    return Path(chosen).expanduser().absolute()


def _key(wanted: _Requirements, base: _Base) -> str:
    facts = [_FORM, *base.identity, *wanted.options, *wanted.lines]
    if wanted.names_local_paths:
        # `./package` means another package when the same text lies in another folder.
        facts.append(str(wanted.path.parent))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def _is_ready(folder: Path) -> bool:
    return (folder / _MARKER).is_file() and _python(folder).exists()


@contextmanager
def _exclusive(folder: Path, progress: Progress) -> Iterator[int]:
    """Hold the folder's lock among processes; yields its file descriptor."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for(lock, folder, progress)
        yield lock
    finally:
        os.close(lock)


def _wait_for(lock: int, folder: Path, progress: Progress) -> None:
    started = time.monotonic()
    next_word = 0.0
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waited = time.monotonic() - started
        if waited >= next_word:
            next_word = waited + _WAIT_WORD_S
            log = f"{folder}.log"
            progress(f"waiting for another process to build {folder.name}, {waited:.0f} s so far; log: {log}")
        time.sleep(_POLL_S)


@dataclass(frozen=True)
class _Builder:
    folder: Path
    wanted: _Requirements
    base: _Base
    progress: Progress
    lock: int
    log: Path

    def build(self) -> None:
        """Fill the folder, then mark it."""
        started = time.monotonic()
        # Built where it stays, since scripts and pyvenv.cfg hold absolute paths: what makes the folder
        # count is the marker, written last. A folder without it is what a failed or killed build left.
        if self.folder.exists():
            self.progress(f"removing the unfinished {self.folder.name}")
            shutil.rmtree(self.folder)
        self.log.write_bytes(b"")
        self._create()
        self._install()
        size_mb = sum(path.lstat().st_size for path in self.folder.rglob("*")) / 1e6
        self._mark()
        self.progress(f"ready in {time.monotonic() - started:.1f} s ({size_mb:.1f} MB)")

    def _create(self) -> None:
        self.progress(f"creating {self.folder}")
        # The base's pip serves the overlay as well. One of its own would bring old copies of pip and
        # setuptools that hide the base's, and costs seconds.
        pip = ["--without-pip"] if self.base.has_pip else []
        self._run([self.base.python, "-m", "venv", *pip, str(self.folder)], cwd=self.folder.parent)
        [site_packages] = self.folder.glob("lib/*/site-packages")
        # The plain line adds the base the way site.py tracks, so that pip's isolated builds can take it off
        # again; the second has the base's own .pth files obeyed (editable installs).
        lines = [f"{path}\nimport site; site.addsitedir({path!r})\n" for path in self.base.sites]
        (site_packages / _BASE_PTH).write_text("".join(lines), encoding="utf-8")

    def _install(self) -> None:
        if not self.wanted.lines:
            return
        # A `user = true` in pip's configuration, common on clusters, is an error inside an environment.
        flags = ["--disable-pip-version-check", "--no-input", "--no-user", *self.wanted.options]
        command = [str(_python(self.folder)), "-m", "pip", "install", *flags, "-r", str(self.wanted.path)]
        # Relative paths in `# pip-options:` count from the file, wherever the service was started.
        self._run(command, cwd=self.wanted.path.parent)

    def _run(self, command: list[str], cwd: Path) -> None:
        """Run ``[python, "-m", module, …]``, report on it, raise when it fails."""
        by_hand = _without_credentials(f"cd {shlex.quote(str(cwd))} && {shlex.join(command)}")
        with self.log.open("ab") as log:
            log.write(f"$ {by_hand}\n".encode())
            log.flush()
            start = log.tell()
            process = subprocess.Popen(
                [command[0], "-u", "-c", _FOLLOWER, str(os.getpid()), *command[2:]],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                # It and its guard share the lock: should this process die, the next builder waits for them.
                pass_fds=(self.lock,),
            )
        try:
            self._report(process, start)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode:
            raise EnvironmentBuildError(self._failure(command[2], process.returncode, by_hand, start))

    def _report(self, process: subprocess.Popen[bytes], start: int) -> None:
        """Turn what *process* logs into progress until it ends."""
        spoken = started = time.monotonic()
        rest = b""
        with self.log.open("rb") as log:
            log.seek(start)
            ended = False
            while not ended:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
                # Asked before the log is read, so that the last lines are.
                ended = process.returncode is not None
                *lines, rest = (rest + log.read()).split(b"\n")
                now = time.monotonic()
                if not lines and now - spoken > _QUIET_WORD_S:
                    self.progress(f"still at it after {now - started:.0f} s; log: {self.log}")
                    spoken = now
                for line in lines:
                    spoken = now
                    if headline := _headline(line.decode(errors="replace").strip()):
                        self.progress(_without_credentials(headline))

    def _failure(self, what: str, code: int, by_hand: str, start: int) -> str:
        output = self.log.read_bytes()[start:].decode(errors="replace")
        last = [line for line in output.splitlines() if line.strip()][-_TAIL_LINES:]
        how = f"exited with {code}" if code > 0 else f"was killed by {signal.Signals(-code).name}"
        return (
            f"the environment of {self.wanted.path} could not be built: {what} {how}. Correct the cause and "
            f"start again; the environment is then built anew. To repeat this step by hand:\n  {by_hand}\n"
            f"All its output: {self.log}. Its last lines:\n"
            + _without_credentials("\n".join(f"  {line}" for line in last))
        )

    def _mark(self) -> None:
        unfinished = self.folder / f"{_MARKER}.tmp"
        unfinished.write_text(json.dumps({"requirements": str(self.wanted.path), "base": self.base.python}))
        unfinished.replace(self.folder / _MARKER)


def _without_credentials(text: str) -> str:
    return _CREDENTIALS.sub("****@", text)


def _headline(line: str) -> str | None:
    """What a line of pip's output tells a person who waits; None for the rest."""
    if line.startswith("Installing collected packages: "):
        count = line.count(",") + 1
        return f"installing {count} package{'s' if count > 1 else ''}"
    for pattern, words in _HEADLINES:
        if match := pattern.match(line):
            return match.expand(words)
    return None
