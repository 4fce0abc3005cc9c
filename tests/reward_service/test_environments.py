"""Environments are built from wheels that the test writes; no package registry is asked."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import venv
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reward_service.errors import EnvironmentBuildError
from reward_service.workers.environments import describe_environment, ensure_environment

pytestmark = pytest.mark.slow  # it builds some twenty environments

BUILDER = """
import sys
from pathlib import Path
from reward_service.workers.environments import ensure_environment
file, cache, base = sys.argv[1:]
python = ensure_environment(
    Path(file), cache_dir=Path(cache), base_python=base, progress=lambda text: print(text, flush=True))
print("PYTHON", python, flush=True)
"""

# A build backend that hands over a wheel of the project. If there is a pipe `hello`, it first says there what
# process group it is in, keeps that pipe open, and waits until somebody opens and closes the pipe `gate`.
BACKEND = """
import os, pathlib, shutil
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    if os.path.exists("hello"):
        with open("hello", "w") as hello:
            print(os.getpgrp(), file=hello, flush=True)
            pathlib.Path("gate").read_text()
    [wheel] = pathlib.Path({folder!r}).glob("*.whl")
    shutil.copy(wheel, wheel_directory)
    return wheel.name
"""


def write_wheel(folder: Path, name: str, version: str, files: dict[str, str], requires: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += f"Requires-Dist: {requires}\n" if requires else ""
    content = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*content, f"{info}/RECORD"])
    wheel = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in {**content, f"{info}/RECORD": record}.items():
            archive.writestr(path, text)
    return wheel


def unpack(wheel: Path, environment: Path) -> None:
    [site_packages] = environment.glob("lib/*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site_packages)


def answer(python: Path | str, code: str) -> str:
    return subprocess.check_output([python, "-c", code], cwd="/", text=True).strip()


@dataclass
class Workshop:
    """A folder with requirements files, wheels and a cache, and the base that all tests share."""

    root: Path
    wheels: Path
    cache: Path
    base: str
    said: list[str] = field(default_factory=list)

    def write(self, *lines: str, name: str = "scorer.txt") -> Path:
        path = self.root / name
        local = f"# pip-options: --no-index --find-links {self.wheels}"
        path.write_text("\n".join([local, *lines]) + "\n")
        return path

    def ensure(self, path: Path) -> Path:
        self.said.clear()
        say = self.said.append
        return ensure_environment(path, cache_dir=self.cache, base_python=self.base, progress=say)

    def start(self, path: Path) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILDER, str(path), str(self.cache), self.base]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def project(self, name: str, source: str = "") -> Path:
        """A local package with a build backend of its own."""
        folder = self.root / name
        write_wheel(folder, name, "1.0", {f"{name}.py": source})
        (folder / "backend.py").write_text(BACKEND.format(folder="."))
        (folder / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        )
        return folder

    def slow_project(self) -> Path:
        """One whose build says hello and then waits at the gate."""
        folder = self.project("slow")
        os.mkfifo(folder / "hello")
        os.mkfifo(folder / "gate")
        return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A virtual environment with pip, tinynum 2.4, tinybase, tinybackend 1 and an editable install."""
    root = tmp_path_factory.mktemp("base")
    venv.create(root / "venv", with_pip=True, symlinks=True)
    for name, version, source in [
        ("tinynum", "2.4", "VERSION = '2.4'"),
        ("tinybase", "1.5", ""),
        ("tinybackend", "1.0", BACKEND.format(folder="built-by-1")),
    ]:
        unpack(write_wheel(root, name, version, {f"{name}.py": source}), root / "venv")
    (root / "src").mkdir()
    (root / "src" / "tinyedit.py").write_text("VERSION = 'base'")
    unpack(write_wheel(root, "tinyedit", "1.0", {"tinyedit.pth": f"{root / 'src'}\n"}), root / "venv")
    return str(root / "venv" / "bin" / "python")


@pytest.fixture
def workshop(tmp_path: Path, base: str, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    shop = Workshop(tmp_path, tmp_path / "wheels", tmp_path / "cache", base)
    write_wheel(shop.wheels, "tinynum", "2.2", {"tinynum.py": "VERSION = '2.2'"})
    return shop


def test_own_packages_come_before_those_of_the_base(workshop: Workshop) -> None:
    """The overlay sees its own version, other packages of the base, and the base stays as it was."""
    python = workshop.ensure(workshop.write("tinynum<2.3"))
    assert answer(python, "import tinynum; print(tinynum.VERSION)") == "2.2"
    shared = Path(answer(python, "import tinybase; print(tinybase.__file__)"))
    assert shared.is_relative_to(Path(workshop.base).parents[1])
    assert answer(workshop.base, "import tinynum; print(tinynum.VERSION)") == "2.4"


def test_an_editable_install_of_the_base_is_seen(workshop: Workshop) -> None:
    """The .pth files of the base count in the overlay."""
    python = workshop.ensure(workshop.write())
    assert answer(python, "import tinyedit; print(tinyedit.VERSION)") == "base"


def test_an_editable_install_of_the_overlay_comes_before_the_base(workshop: Workshop) -> None:
    """What the overlay adds through a .pth file wins too, whatever that file is called."""
    files = {"zz_editable.pth": "own_src\n", "own_src/tinyedit.py": "VERSION = 'overlay'"}
    write_wheel(workshop.wheels, "owned", "1.0", files)
    python = workshop.ensure(workshop.write("owned"))
    assert answer(python, "import tinyedit; print(tinyedit.VERSION)") == "overlay"


def test_what_the_base_satisfies_is_not_installed_again(workshop: Workshop) -> None:
    """A requirement and a dependency that the base meets add nothing to the overlay."""
    write_wheel(workshop.wheels, "tinybase", "1.6", {"tinybase.py": ""})
    write_wheel(workshop.wheels, "needy", "1.0", {"needy.py": ""}, requires="tinynum>=2.3")
    python = workshop.ensure(workshop.write("tinybase>=1.0", "needy"))
    [site_packages] = python.parents[1].glob("lib/*/site-packages")
    assert [path.name for path in site_packages.glob("*.dist-info")] == ["needy-1.0.dist-info"]
    assert "tinybase>=1.0: 1.5 is already there" in workshop.said


def test_progress_tells_the_story(workshop: Workshop) -> None:
    """A person who waits reads what is collected, how much is installed, how long it took."""
    workshop.ensure(workshop.write("tinynum<2.3"))
    creating, collecting, installing, ready = workshop.said
    assert creating.startswith("creating ")
    assert (collecting, installing) == ("collecting tinynum-2.2-py3-none-any.whl", "installing 1 package")
    assert re.fullmatch(r"ready in \d+\.\d s \(\d+\.\d MB\)", ready)


def test_a_ready_environment_is_used_as_it_is(workshop: Workshop) -> None:
    """The second call builds nothing and says nothing."""
    file = workshop.write()
    first = workshop.ensure(file)
    assert workshop.said
    assert workshop.ensure(file) == first
    assert workshop.said == []


def test_the_content_decides_which_environment(workshop: Workshop) -> None:
    """Remarks and blank lines do not matter; requirements and pip options do."""
    before = workshop.ensure(workshop.write())
    assert workshop.ensure(workshop.write("# a remark", "", "   # another")) == before
    assert workshop.ensure(workshop.write("tinybase")) != before
    assert workshop.ensure(workshop.write("# pip-options: --no-deps")) != before


def test_included_files_are_content_too(workshop: Workshop) -> None:
    """A change in a file that an included file includes leads to another environment."""
    workshop.write("-c pins.txt", name="more.txt")
    (workshop.root / "pins.txt").write_text("tinybase<2\n")
    file = workshop.write("-r more.txt")
    before = workshop.ensure(file)
    (workshop.root / "pins.txt").write_text("tinybase<3\n")
    assert workshop.ensure(file) != before


def test_a_local_package_belongs_to_its_folder(workshop: Workshop, base: str) -> None:
    """The same line `./mine` beside another package is another environment."""
    for place in ["here", "there"]:
        shop = Workshop(workshop.root / place, workshop.wheels, workshop.cache, base)
        shop.project("mine", source=f"PLACE = {place!r}")
        assert answer(shop.ensure(shop.write("./mine")), "import mine; print(mine.PLACE)") == place


def test_another_base_is_another_environment(workshop: Workshop) -> None:
    """Two bases with the same interpreter do not share an environment, with or without pip in them."""
    venv.create(workshop.root / "other", with_pip=False, symlinks=True)
    file = workshop.write("tinynum")
    other = str(workshop.root / "other/bin/python")
    python = ensure_environment(file, cache_dir=workshop.cache, base_python=other)
    assert answer(python, "import tinynum; print(tinynum.VERSION)") == "2.2"
    assert workshop.ensure(file) != python


def test_pip_options_are_forwarded(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """`# pip-options:` reaches pip; its relative paths count from the file, not from where one is."""
    write_wheel(workshop.root / "here", "needy", "1.0", {"needy.py": ""}, requires="nowhere-to-be-found")
    monkeypatch.chdir("/")
    file = workshop.root / "needy.txt"
    file.write_text("# pip-options: --no-index --find-links here --no-deps\nneedy\n")
    assert answer(workshop.ensure(file), "import needy; print('imported')") == "imported"


def test_the_users_pip_configuration_counts(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Index settings come from it; its `user = true`, an error in an environment, does no harm."""
    config = workshop.root / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {workshop.wheels}\n[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    file = workshop.root / "plain.txt"
    file.write_text("tinynum<2.3\n")
    assert answer(workshop.ensure(file), "import tinynum; print(tinynum.VERSION)") == "2.2"


def test_a_source_build_is_isolated_from_the_base(workshop: Workshop) -> None:
    """A project that needs a newer build tool than the base's gets the newer one."""
    newer = {"tinybackend.py": BACKEND.format(folder="built-by-2")}
    write_wheel(workshop.wheels, "tinybackend", "2.0", newer)
    project = workshop.root / "project"
    for version in "12":
        write_wheel(project / f"built-by-{version}", "made", "1.0", {"made.py": f"BY = {version}"})
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["tinybackend==2.0"]\nbuild-backend = "tinybackend"\n'
    )
    python = workshop.ensure(workshop.write("./project"))
    assert answer(python, "import made; print(made.BY)") == "2"


def test_a_failure_shows_the_end_of_the_output_and_the_command(workshop: Workshop) -> None:
    """The message's command does the same by hand; what failed is never used and is built anew."""
    file = workshop.write("tinynum==99")
    with pytest.raises(EnvironmentBuildError) as caught:
        workshop.ensure(file)
    message = str(caught.value)
    assert str(file) in message
    assert "No matching distribution found for tinynum==99" in message.splitlines()[-1]
    [command] = [line for line in message.splitlines() if " -m pip install " in line]
    by_hand = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert by_hand.returncode == 1
    assert "No matching distribution found for tinynum==99" in by_hand.stderr

    write_wheel(workshop.wheels, "tinynum", "99", {"tinynum.py": "VERSION = '99'"})
    python = workshop.ensure(file)
    assert workshop.said[0] == f"removing the unfinished {python.parents[1].name}"
    assert answer(python, "import tinynum; print(tinynum.VERSION)") == "99"


def test_a_long_failure_is_cut_to_its_end(workshop: Workshop) -> None:
    """At most 15 lines of the installer's output are in the message, the last ones."""
    noisy = "for n in range(40): print('line', n, flush=True)\nraise RuntimeError('no compiler')"
    (workshop.project("noisy") / "backend.py").write_text(noisy)
    with pytest.raises(EnvironmentBuildError, match="no compiler") as caught:
        workshop.ensure(workshop.write("./noisy"))
    _, output = str(caught.value).split("Its last lines:\n")
    assert 5 < len(output.splitlines()) <= 15


def test_credentials_stay_out_of_message_log_and_progress(workshop: Workshop) -> None:
    """A password in an index URL is neither raised, logged nor said."""
    file = workshop.root / "private.txt"
    url = "http://me:hunter2@127.0.0.1:9/simple"
    file.write_text(f"# pip-options: --retries 0 --index-url {url}\ntinynum==98\n")
    with pytest.raises(EnvironmentBuildError) as caught:
        workshop.ensure(file)
    [log] = workshop.cache.glob("*.log")
    assert "127.0.0.1:9/simple" in str(caught.value)
    assert "hunter2" not in str(caught.value) + log.read_text() + "".join(workshop.said)


def test_concurrent_builders_build_once(workshop: Workshop) -> None:
    """Of two processes that want the same environment one builds, one waits and says so; both get it."""
    project, file = workshop.slow_project(), workshop.write("./slow")
    with workshop.start(file) as first:
        with (project / "hello").open() as hello:
            assert int(hello.readline())
            with workshop.start(file) as second:
                assert second.stdout is not None
                assert second.stdout.readline().startswith("waiting for another process to build scorer-")
                (project / "hello").unlink()
                (project / "gate").write_text("")
                waited = second.communicate()[0]
        built = first.communicate()[0]
    assert built.splitlines()[-1].startswith("PYTHON ")
    assert waited.splitlines()[-1] == built.splitlines()[-1]
    assert ("creating" in built, "creating" in waited) == (True, False)
    [log] = workshop.cache.glob("*.log")
    assert log.read_text().count("pip install") == 1


@pytest.mark.parametrize("installer_too", [False, True], ids=["alone", "with its child, as Ray does"])
def test_a_killed_builder_takes_the_installer_along(workshop: Workshop, installer_too: bool) -> None:
    """After SIGKILL the whole build ends, down to the build backend; until then the next builder waits."""
    project, file = workshop.slow_project(), workshop.write("./slow")
    with workshop.start(file) as builder, (project / "hello").open() as hello:
        installer = int(hello.readline())
        os.killpg(installer, signal.SIGSTOP)  # it cannot notice yet that the builder dies
        builder.kill()
        builder.wait()
        if installer_too:
            os.kill(installer, signal.SIGKILL)
        with workshop.start(file) as following:
            assert following.stdout is not None
            assert following.stdout.readline().startswith("waiting for another process")
            (project / "hello").unlink()
            os.killpg(installer, signal.SIGCONT)
            assert hello.read() == "", "the end of the pipe comes when the backend's process has ended"
            removing, *_, python = following.communicate()[0].splitlines()
    assert removing.startswith("removing the unfinished scorer-")
    assert answer(python.removeprefix("PYTHON "), "import slow; print('imported')") == "imported"


def test_giving_up_ends_the_installer(workshop: Workshop) -> None:
    """An exception in the caller, such as Ctrl-C, leaves no installer behind."""
    project, file = workshop.slow_project(), workshop.write("./slow")
    reader = os.open(project / "hello", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)

    def interrupt(text: str) -> None:
        if text == "collecting slow":
            with (project / "hello").open() as hello:
                assert int(hello.readline())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_environment(file, cache_dir=workshop.cache, base_python=workshop.base, progress=interrupt)
    assert os.read(reader, 100) == b""
    os.close(reader)


def test_the_cache_is_chosen_when_called(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """REWARD_SERVICE_ENV_DIR decides, and without it the user's cache folder."""
    monkeypatch.setenv("HOME", str(workshop.root / "home"))
    monkeypatch.delenv("REWARD_SERVICE_ENV_DIR", raising=False)
    file = workshop.write()
    python = ensure_environment(file, base_python=workshop.base)
    assert python.is_relative_to(workshop.root / "home/.cache/reward-service/envs")
    monkeypatch.setenv("REWARD_SERVICE_ENV_DIR", str(workshop.root / "elsewhere"))
    assert ensure_environment(file, base_python=workshop.base).is_relative_to(workshop.root / "elsewhere")


def test_describe_tells_interpreter_and_versions(workshop: Workshop) -> None:
    """The overlay's version is told where both have one; what is missing is left out."""
    python = workshop.ensure(workshop.write("tinynum<2.3"))
    found = describe_environment(python, packages=["tinynum", "tinybase", "nowhere-to-be-found"])
    versions = {"tinynum": "2.2", "tinybase": "1.5"}
    assert found == {"python": platform.python_version(), "executable": str(python), "packages": versions}


def test_what_cannot_be_read_or_run_is_named(workshop: Workshop) -> None:
    """A missing file, a missing included file, a bad option line, interpreter and cache each say so."""
    with pytest.raises(EnvironmentBuildError, match=r"cannot read .*/none\.txt: .*No such file"):
        workshop.ensure(workshop.root / "none.txt")
    including = workshop.write("-r none.txt")
    with pytest.raises(EnvironmentBuildError, match=r"none\.txt, included by .*/scorer\.txt, line 2: "):
        workshop.ensure(including)
    unclosed = workshop.write("# pip-options: --find-links 'here")
    with pytest.raises(EnvironmentBuildError, match=r"scorer\.txt: .*No closing quotation"):
        workshop.ensure(unclosed)
    plain = workshop.write()
    with pytest.raises(EnvironmentBuildError, match=r"the interpreter /none/python failed: .*No such file"):
        ensure_environment(plain, cache_dir=workshop.cache, base_python="/none/python")
    with pytest.raises(EnvironmentBuildError, match=r"scorer\.txt: .*Set REWARD_SERVICE_ENV_DIR"):
        ensure_environment(plain, cache_dir=plain, base_python=workshop.base)
    with pytest.raises(EnvironmentBuildError, match="the interpreter /bin/false exited with 1"):
        describe_environment(Path("/bin/false"))
