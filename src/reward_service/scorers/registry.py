"""Scorers by name: built in, from installed packages (entry points), or ``package.module:Class``.

Adding a scorer: write a class with ``score``, list its module in `SCORER_MODULES` (or publish an
entry point in the group ``reward_service.scorers``), add ``envs/<scorer>.txt`` if it needs packages,
name it in the YAML. This module runs in scorer processes: standard library only, Python 3.10.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar, overload

from reward_service.errors import ScorerLoadError, UnknownScorer

ENTRY_POINT_GROUP = "reward_service.scorers"

# Importing the module registers the class, so that nothing heavy loads for scorers not in use.
SCORER_MODULES: dict[str, str] = {
    "brisque": "reward_service.scorers.brisque",
    "clip": "reward_service.scorers.clip",
    "jpeg_compressibility": "reward_service.scorers.jpeg",
    "jpeg_incompressibility": "reward_service.scorers.jpeg",
    "ocr": "reward_service.scorers.ocr",
    "pickscore": "reward_service.scorers.pickscore",
}

_registered: dict[str, type] = {}
C = TypeVar("C", bound=type)


@overload
def register(name: str) -> Callable[[C], C]: ...
@overload
def register(name: str, cls: C) -> C: ...
def register(name: str, cls: Any = None) -> Any:
    """Register *cls* under *name*: ``@register("mine")`` or ``register("mine", Mine)``; returns *cls*.

    Raises TypeError for what is not a class with ``score``, ValueError when another class has the name.
    """
    if cls is None:
        return lambda decorated: register(name, decorated)
    if not _is_scorer(cls):
        raise TypeError(f"scorer {name!r}: {cls!r} is not a class with a score(items) method")
    # A module imported a second time (reload, test runners) brings an equal class: that is no conflict.
    if name in _registered and _full_name(_registered[name]) != _full_name(cls):
        raise ValueError(
            f"scorer {name!r} is {_full_name(_registered[name])} already; give {_full_name(cls)} another name"
        )
    _registered[name] = cls
    return cls


def names() -> list[str]:
    """Every name that `get_scorer_cls` accepts without a colon, sorted."""
    return sorted({*SCORER_MODULES, *_registered, *_plugins()})


def get_scorer_cls(spec: str) -> type:
    """The class behind a registered name or ``package.module:Class``.

    Raises UnknownScorer for a name nobody registered, ScorerLoadError (cause kept) when the import fails.
    """
    if ":" in spec:
        return _from_path(spec, repr(spec))
    if spec in _registered:
        return _registered[spec]
    if spec in SCORER_MODULES:
        _import(SCORER_MODULES[spec], f"scorer {spec!r}")
        if spec not in _registered:
            raise ScorerLoadError(f"{SCORER_MODULES[spec]} does not register a scorer {spec!r}")
        return _registered[spec]
    if plugin := _plugins().get(spec):
        return _from_path(plugin.value, f"{spec!r} (entry point {plugin.value})")
    raise UnknownScorer(unknown_message(spec))


def unknown_message(spec: str) -> str:
    """The sentence for a name nobody registered, with the nearest known one."""
    near = difflib.get_close_matches(spec, names(), n=1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    return f"no scorer {spec!r}{hint} Known: {', '.join(names())}; or give package.module:Class"


def _from_path(path: str, what: str) -> type:
    module_name, _, attr = (part.strip() for part in path.partition(":"))
    if not module_name or not attr:
        raise ScorerLoadError(f"scorer {what}: {path!r} is not of the form package.module:Class")
    found: Any = _import(module_name, f"scorer {what}")
    for part in attr.split("."):
        found = getattr(found, part, None)
    if not _is_scorer(found):
        raise ScorerLoadError(f"scorer {what}: {module_name} has no class {attr!r} with a score(items) method")
    return found  # type: ignore[no-any-return]


def _is_scorer(found: object) -> bool:
    return isinstance(found, type) and callable(getattr(found, "score", None))


def _full_name(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _import(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ScorerLoadError(f"{what}: importing {module} failed: {type(error).__name__}: {error}") from error


def _plugins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
