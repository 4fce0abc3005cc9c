"""docs/configuration.md lists every field of the models with its default, and its examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from reward_service.config import (
    ClusterConfig,
    LimitsConfig,
    MpsConfig,
    RewardConfig,
    RewardMps,
    ServerConfig,
    ServiceConfig,
    load_config_text,
    parse_bytes,
)

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[BaseModel]] = {
    "server": ServerConfig,
    "limits": LimitsConfig,
    "cluster": ClusterConfig,
    "mps": MpsConfig,
    "rewards": RewardConfig,
    "rewards[].mps": RewardMps,
}


def _rows(section: str) -> list[list[str]]:
    """The table cells below the heading of *section*, without the head of the table."""
    text = PAGE.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def _documented(kind: str, default: str) -> object:
    if default == "required":
        return "required"
    value = yaml.safe_load(default.strip("`"))
    if kind == "size":
        return parse_bytes(value)
    return tuple(value) if isinstance(value, list) else value


def _defaults(model: type[BaseModel]) -> dict[str, object]:
    return {
        name: "required" if field.is_required() else field.get_default(call_default_factory=True)
        for name, field in model.model_fields.items()
    }


def test_every_section_has_its_heading() -> None:
    """A section added to the models needs a table in the docs."""
    assert [name for name in SECTIONS if "[" not in name] == list(ServiceConfig.model_fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_the_table_has_every_field_and_default_in_order(section: str) -> None:
    """Field names and defaults of the table are those of the model."""
    table = {row[0].strip("`"): _documented(row[1], row[2]) for row in _rows(section)}
    defaults = _defaults(SECTIONS[section])
    assert table == defaults
    assert list(table) == list(defaults)
    # 2 == 2.0 and 1 == True in Python, but not for a reader.
    assert [type(value) for value in table.values()] == [type(value) for value in defaults.values()]


@pytest.mark.parametrize("section", SECTIONS)
def test_every_field_says_when_to_change_it(section: str) -> None:
    """No row of a table ends without its advice."""
    assert all(len(row) == 5 and row[4] for row in _rows(section))


EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_loads(example: str) -> None:
    """The YAML on the page is accepted as it stands."""
    assert load_config_text(example).rewards
