"""Problems in a configuration as sentences: what is wrong with which value, and what to do next."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from reward_service.config.models import ServiceConfig
from reward_service.config.rules import Loc

_SHOWN_CHARACTERS = 80

# By pydantic's error type; the braces take the value and the bounds of the rule.
_SENTENCES = {
    "bool_type": "{value} is not true or false; write one of them",
    "dict_type": "{value} is not a mapping; write 'key: value' lines below it",
    "finite_number": "{value} is not finite; give a finite number",
    "float_type": "{value} is not a number; write one like 1 or 0.5",
    "greater_than": "{value} is too small; give more than {gt:g}",
    "greater_than_equal": "{value} is too small; give at least {ge:g}",
    "int_type": "{value} is not a whole number; write one like 2",
    "invalid_key": "key {value} is not text; put it in quotes",
    "less_than_equal": "{value} is too large; give at most {le:g}",
    "literal_error": "{value} is not possible here; use {expected}",
    "model_type": "{value} is not a mapping; write 'key: value' lines below it",
    "string_type": "{value} is not text; put it in quotes",
    "tuple_type": "{value} is not a list; write '- ' entries below it",
}


def place(loc: Loc, data: object) -> str:
    """*loc* as ``rewards[2] (clip).num_gpus``; the name comes from *data*, the raw configuration."""
    text = ""
    for depth, part in enumerate(loc):
        if isinstance(part, int):
            text += f"[{part}]"
            if depth == 1 and loc[0] == "rewards":
                text += _reward_name(data, part)
        elif part != "[key]":
            key = part if part.isprintable() else repr(part)
            text += f".{key}" if text else key
    return text


def sentence(error: ErrorDetails) -> tuple[Loc, str]:
    """Where a pydantic error belongs, and its sentence."""
    loc, kind = error["loc"], error["type"]
    context: dict[str, Any] = error.get("ctx", {})
    if kind == "extra_forbidden":
        return loc[:-1], unknown_key(loc)
    if kind == "missing":
        return loc, "is missing; add it"
    if kind == "value_error":
        return loc, str(context["error"])
    if kind not in _SENTENCES:
        return loc, error["msg"]
    if kind == "invalid_key":
        loc = loc[:-1]
    if error["input"] is None:
        return loc, "has no value; give one, or remove the line"
    if kind in ("int_type", "float_type", "bool_type") and _is_quoted(error["input"]):
        return loc, f"{_shown(error['input'])} is text; remove the quotes"
    return loc, _SENTENCES[kind].format_map({**context, "value": _shown(error["input"])})


def unknown_key(loc: Loc) -> str:
    """The sentence for a key that no section has at *loc*, with the key that was probably meant."""
    key, known = str(loc[-1]), _keys_at(loc[:-1])
    near = difflib.get_close_matches(key, known, n=1)
    owner = next((name for name in ServiceConfig.model_fields if key in _keys_at((name, 0))), None)
    if key in ServiceConfig.model_fields:
        hint = "it belongs at the top level; check the indentation"
    elif owner:
        hint = f"it belongs in {owner!r}"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"known keys: {', '.join(known)}"
    return f"unknown key {key!r}; {hint}"


def _keys_at(loc: Loc) -> list[str]:
    model: type[BaseModel] = ServiceConfig
    for part in loc:
        if isinstance(part, str):
            model = _section(model.model_fields[part].annotation)
    return list(model.model_fields)


def _section(annotation: Any) -> type[BaseModel]:
    """The model in an annotation: ``ServerConfig``, ``RewardMps | None``, ``tuple[RewardConfig, ...]``."""
    return next(
        part for part in (annotation, *get_args(annotation)) if isinstance(part, type) and issubclass(part, BaseModel)
    )


def _is_quoted(value: object) -> bool:
    if not isinstance(value, str):
        return False
    if value.lower() in ("true", "false"):
        return True
    try:
        float(value)
    except ValueError:
        return False
    return True


def _shown(value: object) -> str:
    if isinstance(value, list | tuple | Mapping):
        return "a list" if not isinstance(value, Mapping) else "a mapping"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def _reward_name(data: object, index: int) -> str:
    rewards = data.get("rewards") if isinstance(data, Mapping) else None
    if not isinstance(rewards, list) or index >= len(rewards) or not isinstance(rewards[index], Mapping):
        return ""
    name = rewards[index].get("name")
    return f" ({name})" if isinstance(name, str) and name.isprintable() else ""
