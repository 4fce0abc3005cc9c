"""A YAML text as plain values that still knows on which line each of them was written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.constructor import ConstructorError
from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from reward_service.config.rules import Loc


class YamlProblem(Exception):
    """The text cannot be read as one YAML document of plain values."""

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Plain values only; 1e-3 is a number, as in YAML 1.2."""

    def construct_object(self, node: Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            # PyYAML converts scalars such as !!int x or 2024-13-01 without naming their place.
            kind, value = node.tag.rpartition(":")[2], str(node.value)[:80]
            problem = f"{value!r} is not a valid {kind}"
            raise ConstructorError(None, None, problem, node.start_mark) from error


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+\Z"),
    list("-+0123456789"),
)


@dataclass(frozen=True)
class Document:
    """The values of a YAML document, its repeated keys as (line, place, text), and its lines.

    value is None for an empty text.
    """

    value: Any
    repeated: tuple[tuple[int, Loc, str], ...]
    root: Node | None

    def line_of(self, loc: Loc, beside: str | None = None) -> int:
        """Line of the key or list entry at *loc*, or of the nearest thing around it that was written.

        Where a key of *loc* was not written, *beside* in the same mapping stands in for it.
        """
        node, line = self.root, 1
        if node is not None:
            line = node.start_mark.line + 1
        for part in loc:
            found = None if node is None else _below(node, part) or (beside and _below(node, beside))
            if not found:
                break
            line, node = found
        return line


def parse(text: str) -> Document:
    """Read one YAML document; raises YamlProblem for text that is not one, with the line."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return Document(None, (), None)
            repeated = tuple(_repeated_keys(root, (), set(), []))
            return Document(loader.construct_document(root), repeated, root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise YamlProblem(mark.line + 1 if mark else 1, what) from error
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise YamlProblem(line, f"unprintable character {chr(error.character)!r}") from error
    except RecursionError as error:
        raise YamlProblem(1, "nested too deeply") from error


def _below(node: Node, part: int | str) -> tuple[int, Node] | None:
    if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.value):
        entry = node.value[part]
        return entry.start_mark.line + 1, entry
    if isinstance(node, MappingNode):
        # The last one counts: what a merge (<<) brings in stands before the mapping's own keys.
        for key, value in reversed(node.value):
            if isinstance(key, ScalarNode) and key.value == str(part):
                return key.start_mark.line + 1, value
    return None


def _repeated_keys(node: Node, loc: Loc, seen: set[int], around: list[int]) -> Iterator[tuple[int, Loc, str]]:
    if id(node) in around:
        raise YamlProblem(node.start_mark.line + 1, "an alias (*name) stands inside what it refers to")
    if id(node) in seen or isinstance(node, ScalarNode):
        return
    seen.add(id(node))
    around.append(id(node))
    if isinstance(node, SequenceNode):
        for index, entry in enumerate(node.value):
            yield from _repeated_keys(entry, (*loc, index), seen, around)
    else:
        first: dict[tuple[str, str], Mark] = {}
        for key, value in node.value:
            name, mark = str(key.value) if isinstance(key, ScalarNode) else "?", key.start_mark
            earlier = first.setdefault((key.tag, name), mark)
            if earlier is not mark and isinstance(key, ScalarNode):
                text = f"key {name!r} was already given on line {earlier.line + 1}; keep one"
                yield mark.line + 1, loc, text
            yield from _repeated_keys(value, (*loc, name), seen, around)
    around.pop()
