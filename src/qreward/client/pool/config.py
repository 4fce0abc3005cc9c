"""A pool from YAML: every problem at once, with file and line."""

from __future__ import annotations

import difflib
import inspect
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from qreward.client.pool.sources import OpenAISource, RewardServiceSource, Source
from qreward.errors import ConfigError

_KINDS: dict[str, type[Source]] = {"openai": OpenAISource, "reward_service": RewardServiceSource}
_POOL = {"max_attempts": int, "spill_on_outage": bool}
_LIMITS = set(inspect.signature(Source.__init__).parameters) - {"self", "name"}
_PROXY = {"timeout", "verify_ssl", "adaptive", "default_headers", "proxy"}
_FIELDS = {
    "openai": _LIMITS | _PROXY | {"name", "kind", "base_url", "api_key_env", "models"},
    "reward_service": _LIMITS | {"name", "kind", "url", "api_key_env", "rewards", "timeout_s"},
}
_VARIABLE = re.compile("[A-Z_][A-Z0-9_]*")
_NEEDED = {"openai": "base_url", "reward_service": "url"}


@dataclass
class _Problems:
    path: Path
    found: list[str] = field(default_factory=list)

    def add(self, node: yaml.Node, message: str) -> None:
        self.found.append(f"{self.path}:{node.start_mark.line + 1}: {message}")


def load(path: Path) -> tuple[dict[str, Any], list[Source]]:
    """The pool's own settings and its sources.

    ``sources`` is a list; each has a `kind` (openai, reward_service), a `name` and the parameters of its class. Keys
    come from the environment: ``api_key_env: JUDGE_KEY``.
    """
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as exc:
        raise ConfigError(f"{path}: cannot be read: {exc.strerror}") from None
    except yaml.YAMLError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    problems = _Problems(path)
    settings: dict[str, Any] = {}
    sources: list[Source] = []
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(f"{path}: must be a mapping with the key 'sources'")
    for name, key, node in _items(root, problems):
        if name == "sources" and isinstance(node, yaml.SequenceNode):
            sources = _sources(node, problems)
        elif name in _POOL:
            settings[name] = value = _value(node, problems)
            if type(value) is not _POOL[name]:
                problems.add(key, f"{name} must be {_POOL[name].__name__}, got {value!r}")
            elif name == "max_attempts" and settings[name] < 1:
                problems.add(key, f"{name} must be >= 1, got {value!r}")
        else:
            problems.add(key, _unknown(name, [*_POOL, "sources"]))
    if not sources and not problems.found:
        problems.add(root, "'sources' must be a list with at least one source")
    if problems.found:
        raise ConfigError("\n".join(problems.found))
    return settings, sources


def _sources(node: yaml.SequenceNode, problems: _Problems) -> list[Source]:
    sources: dict[str, Source] = {}
    for item in node.value:
        source = _source(item, problems)
        if source is not None and source.name in sources:
            problems.add(item, f"there is a source named {source.name!r} already; names must differ")
        elif source is not None:
            sources[source.name] = source
    return list(sources.values())


def _source(node: yaml.Node, problems: _Problems) -> Source | None:
    if not isinstance(node, yaml.MappingNode):
        problems.add(node, "a source must be a mapping with 'kind' and 'name'")
        return None
    before = len(problems.found)
    items = _items(node, problems)
    values = {name: _value(value, problems) for name, _, value in items}
    if len(problems.found) > before:
        return None
    kind = values.get("kind", "openai")
    if not isinstance(kind, str) or kind not in _KINDS:
        problems.add(node, f"kind {_unknown(str(kind), list(_KINDS))}")
        return None
    for name, key, _ in items:
        if name not in _FIELDS[kind]:
            problems.add(key, _unknown(name, sorted(_FIELDS[kind])))
    for needed in ("name", _NEEDED[kind]):
        value = values.get(needed)
        if not isinstance(value, str) or not value:
            got = "" if value is None else f", got {value!r}"
            problems.add(node, f"a source of kind {kind!r} needs {needed!r}, a string{got}")
    variable = values.pop("api_key_env", None)
    if variable is not None and (not isinstance(variable, str) or variable not in os.environ):
        problems.add(node, _no_key(variable))
    if len(problems.found) > before:
        return None
    values.pop("kind", None)
    if variable is not None:
        values["api_key"] = os.environ[variable]
    try:
        return _KINDS[kind](**values)
    except (ConfigError, TypeError, ValueError) as exc:
        problems.add(node, str(exc))
        return None


def _no_key(variable: object) -> str:
    if isinstance(variable, str) and _VARIABLE.fullmatch(variable):
        return f"api_key_env: the environment variable {variable!r} is not set"
    # What stands there may be the key itself.
    return "api_key_env must be the name of an environment variable that is set (its value is not shown here)"


def _items(node: yaml.MappingNode, problems: _Problems) -> list[tuple[str, yaml.Node, yaml.Node]]:
    """Name, key and value of every entry; a name that is no string or comes twice is a problem."""
    items: dict[str, tuple[str, yaml.Node, yaml.Node]] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            problems.add(key, "a key must be a plain word")
        elif key.value in items:
            problems.add(key, f"{key.value!r} stands there twice")
        else:
            items[key.value] = key.value, key, value
    return list(items.values())


def _value(node: yaml.Node, problems: _Problems) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node, deep=True)
    except yaml.MarkedYAMLError as exc:
        problems.add(node, str(exc.problem))
        return None
    finally:
        loader.dispose()


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
    return f"{name!r} is not known; {hint}"
