"""The registry: built-in scorers, scorers from outside, and what is said when one cannot load."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from reward_service.errors import BadMedia, ScorerLoadError, UnknownScorer
from reward_service.scorers import registry
from reward_service.scorers.base import BaseScorer, ItemScorer, ScoreItem

ROOT = Path(__file__).parents[2]


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on sys.path that is not the repository."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write_scorer(folder: Path, module: str, decorator: str = "") -> None:
    (folder / f"{module}.py").write_text(
        dedent(f"""
            from reward_service.scorers.base import BaseScorer
            from reward_service.scorers.registry import register

            {decorator}
            class TextLength(BaseScorer):
                sub_metric_names = ("text_length",)

                def score(self, items):
                    return [{{"text_length": float(len(item.text))}} for item in items]
        """)
    )


def publish_entry_point(folder: Path, name: str, value: str) -> None:
    """What installing a package leaves: a dist-info folder with an entry point."""
    info = folder / f"{name}_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{name} = {value}\n")


def lengths(cls: type) -> list[dict[str, float]]:
    return cls().score([ScoreItem([("four", None)]), ScoreItem([("", None)])])


@pytest.mark.parametrize("name", sorted(registry.SCORER_MODULES))
def test_every_built_in_name_loads(name: str) -> None:
    """Every name in SCORER_MODULES is a scorer class with named sub-metrics and a documented contract."""
    cls = registry.get_scorer_cls(name)
    assert issubclass(cls, BaseScorer)
    assert cls.sub_metric_names
    assert cls.__doc__
    assert name in registry.names()


@pytest.mark.parametrize("name", sorted(registry.SCORER_MODULES))
def test_every_built_in_scorer_has_a_page(name: str) -> None:
    """The index in docs/scorers names every built-in scorer and links to a page that exists."""
    docs = ROOT / "docs" / "scorers"
    row = next(line for line in (docs / "README.md").read_text().splitlines() if f"`{name}`" in line)
    page = row.split("](")[1].split(")")[0]
    assert f"`{name}`" in (docs / page).read_text()


def test_scorer_modules_import_in_the_base_environment() -> None:
    """Importing all scorer modules takes the standard library, Pillow and numpy, and nothing else."""
    program = """if True:
        import importlib, json, sys
        before = set(sys.modules)
        from reward_service.scorers.registry import SCORER_MODULES
        for module in SCORER_MODULES.values():
            importlib.import_module(module)
        new = {name.partition(".")[0] for name in set(sys.modules) - before}
        print(json.dumps(sorted(new - set(sys.stdlib_module_names))))
    """
    result = subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True)
    assert set(json.loads(result.stdout)) <= {"reward_service", "PIL", "numpy"}


def test_four_steps_inside_the_repository(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class under @register whose module stands in SCORER_MODULES is found by its name and scores."""
    write_scorer(outside, "steps_inside", '@register("steps_inside")')
    monkeypatch.setitem(registry.SCORER_MODULES, "steps_inside", "steps_inside")
    assert lengths(registry.get_scorer_cls("steps_inside")) == [{"text_length": 4.0}, {"text_length": 0.0}]


def test_a_scorer_outside_the_repository_by_path(outside: Path) -> None:
    """package.module:Class names a scorer that nobody registered."""
    write_scorer(outside, "steps_path")
    assert lengths(registry.get_scorer_cls("steps_path:TextLength"))[0] == {"text_length": 4.0}


def test_a_scorer_outside_the_repository_by_entry_point(outside: Path) -> None:
    """An installed package adds a name by an entry point, without an import of this package's list."""
    write_scorer(outside, "steps_plugin")
    publish_entry_point(outside, "length_plugin", "steps_plugin:TextLength")
    assert "length_plugin" in registry.names()
    assert lengths(registry.get_scorer_cls("length_plugin"))[0] == {"text_length": 4.0}


def test_an_entry_point_does_not_replace_a_built_in_scorer(outside: Path) -> None:
    """A package that publishes a built-in name changes nothing."""
    write_scorer(outside, "steps_intruder")
    publish_entry_point(outside, "jpeg_compressibility", "steps_intruder:TextLength")
    assert registry.get_scorer_cls("jpeg_compressibility").__module__ == "reward_service.scorers.jpeg"


def test_a_failed_import_keeps_its_cause(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the scorer is named, the error that stopped its module is the cause and part of the message."""
    (outside / "steps_broken.py").write_text("import a_package_that_is_not_there\n")
    publish_entry_point(outside, "broken_plugin", "steps_broken:Scorer")
    monkeypatch.setitem(registry.SCORER_MODULES, "steps_broken", "steps_broken")
    for spec in ("steps_broken", "steps_broken:Scorer", "broken_plugin"):
        with pytest.raises(ScorerLoadError, match="a_package_that_is_not_there") as caught:
            registry.get_scorer_cls(spec)
        assert isinstance(caught.value.__cause__, ModuleNotFoundError)
        assert spec in str(caught.value)


def test_a_module_that_registers_nothing_is_said_so(outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listed module without @register for the name is an error that names the module."""
    write_scorer(outside, "steps_forgotten")
    monkeypatch.setitem(registry.SCORER_MODULES, "forgotten", "steps_forgotten")
    with pytest.raises(ScorerLoadError, match="steps_forgotten does not register a scorer 'forgotten'"):
        registry.get_scorer_cls("forgotten")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("json:Nothing", "json has no class 'Nothing'"),
        ("json:loads", "json has no class 'loads' with a score"),
        ("json:", "not of the form package.module:Class"),
        (":Scorer", "not of the form package.module:Class"),
        ("no_such_package.scorers:Mine", "No module named 'no_such_package'"),
    ],
)
def test_a_path_that_leads_to_no_scorer(spec: str, says: str) -> None:
    """A wrong package.module:Class says which part is wrong."""
    with pytest.raises(ScorerLoadError, match=says):
        registry.get_scorer_cls(spec)


def test_an_unknown_name_gets_the_nearest_one() -> None:
    """A typo is answered with the name that was meant and all names there are."""
    with pytest.raises(UnknownScorer, match=r"no scorer 'birsque'; did you mean 'brisque'\? Known: .*ocr"):
        registry.get_scorer_cls("birsque")
    with pytest.raises(UnknownScorer, match=r"no scorer 'zzz'\. Known: "):
        registry.get_scorer_cls("zzz")


def test_a_name_belongs_to_one_class() -> None:
    """A second class under a taken name is refused; the same class again, as after a reload, is not."""

    class First:
        def score(self, items: list[ScoreItem]) -> list[dict[str, float]]:
            return []

    class Second(First):
        pass

    assert registry.register("test_taken", First) is First
    registry.register("test_taken", First)
    with pytest.raises(ValueError, match=r"'test_taken' is .*First already"):
        registry.register("test_taken", Second)
    with pytest.raises(TypeError, match="not a class with a score"):
        registry.register("test_other", object)


class Picky(ItemScorer):
    sub_metric_names = ("picky",)

    def score_item(self, item: ScoreItem) -> dict[str, float]:
        if item.text == "bug":
            raise ZeroDivisionError
        return {"picky": float(item.required_image().width)}


def test_an_item_error_stays_with_its_item() -> None:
    """ItemScorer puts an ItemError in the item's place, and lets a bug out to the one who attributes it."""
    from PIL import Image

    image = Image.new("RGB", (3, 2))
    good, bad = ScoreItem([("a", None), ("b", image)]), ScoreItem([("a", image), ("b", None)])
    first, second, third = Picky().score([good, bad, good])
    assert first == third == {"picky": 3.0}
    assert isinstance(second, BadMedia)
    assert "history[1] has no image" in str(second)
    with pytest.raises(ZeroDivisionError):
        Picky().score([good, ScoreItem([("bug", image)])])
