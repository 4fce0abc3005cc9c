"""Reads a YAML file into a `ServiceConfig`, or says everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from reward_service.config.document import Document, YamlProblem, parse
from reward_service.config.models import ServiceConfig
from reward_service.config.problems import place, sentence
from reward_service.config.rules import Loc, Origin
from reward_service.errors import ConfigError

# Top-level keys that are the author's own, a place for anchors.
_OWN_KEYS = "x-"


def load_config(path: str | Path) -> ServiceConfig:
    """Read the configuration file at *path*.

    Relative paths in it are looked for beside the file, then in the working directory. Raises
    FileNotFoundError when there is no such file, and ConfigError with one line per problem,
    ``FILE:LINE: rewards[2] (clip).num_gpus: what is wrong; what to do``.
    """
    file = Path(path).expanduser()
    try:
        text = file.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise FileNotFoundError(f"no configuration file {str(path)!r} in {Path.cwd()}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); give a YAML file") from error
    file = file.absolute()
    return _load(text, str(path), Origin(base_dir=file.parent, source=file))


def load_config_text(text: str, source: str = "<string>", base_dir: str | Path | None = None) -> ServiceConfig:
    """Read a configuration from *text*, named *source* in messages; raises ConfigError as `load_config`.

    *base_dir* takes the place of the file's folder; without it relative paths mean the working directory.
    """
    return _load(text, source, Origin(base_dir=Path(base_dir or "").absolute()))


def _load(text: str, source: str, origin: Origin) -> ServiceConfig:
    try:
        document = parse(text)
    except YamlProblem as error:
        raise ConfigError(f"{source}:{error.line}: not valid YAML: {error}; correct this line") from error
    if document.value is None:
        raise ConfigError(f"{source}:1: the file is empty; give at least 'rewards:' with one entry")
    if not isinstance(document.value, dict):
        kind = "a list" if isinstance(document.value, list) else "a single value"
        line = document.line_of(())
        raise ConfigError(f"{source}:{line}: the file holds {kind}; it must be a mapping with 'rewards:'")
    data = {
        key: value for key, value in document.value.items() if not (isinstance(key, str) and key.startswith(_OWN_KEYS))
    }
    problems = list(document.repeated)
    try:
        config = ServiceConfig.model_validate(data, context=origin)
    except ValidationError as error:
        problems += _found(error, document)
    if problems:
        problems.sort(key=lambda problem: problem[0])
        lines = [_message(source, line, place(loc, data), text) for line, loc, text in problems]
        raise ConfigError("\n".join(dict.fromkeys(lines)))
    return config


def _found(error: ValidationError, document: Document) -> list[tuple[int, Loc, str]]:
    found = []
    for details in error.errors():
        loc, text = sentence(details)
        # The key itself may be a default that nobody wrote.
        line = document.line_of(details["loc"], beside=details.get("ctx", {}).get("beside"))
        found.append((line, loc, text))
    return found


def _message(source: str, line: int, where: str, text: str) -> str:
    return f"{source}:{line}: {where}: {text}" if where else f"{source}:{line}: {text}"
