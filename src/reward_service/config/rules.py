"""Rules that a value must keep: what may be written, what is refused, and with which words."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, ValidationInfo
from pydantic_core import InitErrorDetails, PydanticCustomError

from reward_service.config.quantities import parse_bytes
from reward_service.scorers import registry

Loc = tuple[int | str, ...]

# Ray counts resources in steps of this size and refuses less.
_RAY_STEP = 0.0001
# A unix socket lives in the pipe directory, and its whole path has to fit in 107 bytes.
_MPS_DIRECTORY_CHARACTERS = 80


@dataclass(frozen=True)
class Origin:
    """Where a configuration was read: the pydantic validation context of `ServiceConfig`."""

    base_dir: Path
    source: Path | None = None


def refuse(problems: Iterable[tuple[Loc, str]], also: ValidationError | None = None) -> NoReturn:
    """Raise every problem, each at its place below the field that is validated."""
    lines = [
        InitErrorDetails(type=PydanticCustomError("rule", "{text}", {"text": text}), loc=loc, input=None)
        for loc, text in problems
    ]
    for error in also.errors() if also else []:
        context = {**error.get("ctx", {}), "text": error["msg"]}
        kind = PydanticCustomError(error["type"], "{text}", context)
        lines.append(InitErrorDetails(type=kind, loc=error["loc"], input=error["input"]))
    raise ValidationError.from_exception_data("config", lines)


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("is blank; give a name or remove the line")
    return value


def _ray_amount(value: float) -> float:
    if 0 < value < _RAY_STEP:
        raise ValueError(f"{value:g} is finer than Ray counts; use 0 or at least {_RAY_STEP}")
    return value


def _gpu_amount(value: float) -> float:
    if value > 1 and not value.is_integer():
        raise ValueError(
            f"{value:g} is neither a part of one GPU nor a number of whole GPUs, and Ray refuses it; "
            f"use {math.floor(value)} or {math.ceil(value)}"
        )
    return value


def _nothing_is_empty(value: object) -> object:
    """A section whose lines are all commented out reads as null; it means the defaults."""
    return {} if value is None else value


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _candidates(value: object, info: ValidationInfo) -> list[str]:
    """Absolute paths that *value* may mean: beside the config file first, then in the working directory."""
    if not isinstance(value, str | Path) or not str(value).strip():
        raise ValueError(f"{value!r} is not a path; write it as text, or remove the line")
    base = info.context.base_dir if isinstance(info.context, Origin) else Path.cwd()
    path = os.path.expanduser(value)
    return list(dict.fromkeys(os.path.abspath(folder / path) for folder in (base, Path.cwd())))


def _existing(value: object, info: ValidationInfo, kind: str, exists: Callable[[str], bool]) -> Path:
    candidates = _candidates(value, info)
    for candidate in candidates:
        if exists(candidate):
            return Path(candidate)
    if len(candidates) == 1:
        raise ValueError(f"no {kind} at {candidates[0]}; create it or correct the path")
    looked = " nor at ".join(candidates)
    raise ValueError(f"no {kind} {str(value)!r}, neither at {looked}; create it or correct the path")


def _existing_file(value: object, info: ValidationInfo) -> Path:
    return _existing(value, info, "file", os.path.isfile)


def _existing_folder(value: object, info: ValidationInfo) -> Path:
    # Without symlinks, because the gateway compares resolved video paths against it.
    return _existing(value, info, "directory", os.path.isdir).resolve()


def _mps_directory(value: object, info: ValidationInfo) -> str:
    path = _candidates(value, info)[0]
    if len(path) > _MPS_DIRECTORY_CHARACTERS:
        raise ValueError(
            f"{path!r} has {len(path)} characters, and a socket below it needs room; "
            f"use at most {_MPS_DIRECTORY_CHARACTERS}"
        )
    return path


def _known_scorer(spec: str) -> str:
    """A registered name, or the shape ``package.module:Class``; nothing is imported."""
    if ":" not in spec:
        if spec not in registry.names():
            raise ValueError(registry.unknown_message(spec))
        return spec
    module, _, attr = spec.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attr.split("."))):
        raise ValueError(f"{spec!r} is not package.module:Class; write it like my_rewards.colour:Warmth")
    return spec


def _a_size(text: str) -> str:
    parse_bytes(text)
    return text


def conflict(text: str, beside: str) -> PydanticCustomError:
    """A problem between two keys; *beside* has the line when the first key is not in the file."""
    return PydanticCustomError("rule", "{text}", {"text": text, "beside": beside})


def not_json(value: object, loc: Loc) -> Iterator[tuple[Loc, str]]:
    """What in *value* cannot travel to the scorer process, which reads its params as JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield loc, f"key {key!r} is not text; put it in quotes"
            yield from not_json(inner, (*loc, str(key)))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from not_json(inner, (*loc, index))
    elif isinstance(value, float) and not math.isfinite(value):
        yield loc, f"{value} is not finite; give a finite number"
    elif not isinstance(value, str | int | float | None):
        kind = type(value).__name__
        yield loc, f"{str(value)[:80]!r} is read as a {kind}, which JSON cannot carry; put it in quotes"


def tensor_parallel_problem(size: object, num_gpus: float) -> str | None:
    """Why a scorer cannot split its model over *size* of *num_gpus* GPUs; None if it can."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        return f"{size!r} is not a number of GPUs; write a whole number like 2"
    if size > num_gpus:
        return f"{size} GPUs are more than num_gpus: {num_gpus:g}; raise num_gpus to {size} or lower this"
    return None


Name = Annotated[str, Field(strict=True), AfterValidator(_not_blank)]
Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1)]
Seconds = Annotated[float, Field(strict=True, gt=0)]
AtLeastZero = Annotated[float, Field(strict=True, ge=0)]
Bytes = Annotated[int, BeforeValidator(parse_bytes)]
SizeText = Annotated[str, Field(strict=True), AfterValidator(_a_size)]
AnyCase = BeforeValidator(_lower)
ExistingFile = Annotated[Path, BeforeValidator(_existing_file)]
ExistingFolder = Annotated[Path, BeforeValidator(_existing_folder)]
MpsDirectory = Annotated[str, BeforeValidator(_mps_directory)]
Scorer = Annotated[str, Field(strict=True), AfterValidator(_known_scorer)]
CpuAmount = Annotated[float, Field(strict=True, ge=0), AfterValidator(_ray_amount)]
GpuAmount = Annotated[CpuAmount, AfterValidator(_gpu_amount)]
EmptyIsDefault = BeforeValidator(_nothing_is_empty)
