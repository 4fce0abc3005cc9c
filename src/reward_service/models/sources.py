"""Where weights come from: a local path, which touches no network, or a repository of the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reward_service.errors import ScorerLoadError


def weights_file(weights_path: str | None, model_name: str, filename: str) -> Path:
    """The file *filename* of a model.

    weights_path: the file itself, or the folder that holds it; it wins over *model_name*, which is a hub
    repository (``org/name``) or a local folder. Raises FileNotFoundError, naming the file that is missing.
    """
    local = _local(weights_path, model_name)
    if local is None:
        return _from_hub(model_name, filename)
    path = local / filename if local.is_dir() else local
    if not path.is_file():
        raise FileNotFoundError(f"no {filename} at {path}; put the file there, or correct weights_path")
    return path


def weights_folder(
    weights_path: str | None, model_name: str, needed: Sequence[str], patterns: Sequence[str] = ("*.json", "*.txt")
) -> Path:
    """The folder of a model in transformers' layout, with every file of *needed* in it.

    An entry of *needed* may name alternatives, separated by "|". *patterns* is what is fetched of a hub repository
    besides *needed*. Raises FileNotFoundError, naming what is missing.
    """
    local = _local(weights_path, model_name)
    folder = local if local is not None else _snapshot(model_name, needed, patterns)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is no folder; give the folder that holds {', '.join(needed)}")
    for entry in needed:
        if not any((folder / name).is_file() for name in entry.split("|")):
            wanted = entry.replace("|", " or ")
            raise FileNotFoundError(f"no {wanted} in {folder}; put the file there: {_hint(model_name, wanted, local)}")
    return folder


# The weights of a transformers folder: safetensors first, and an index where they come in pieces.
SAFE_WEIGHTS = "model.safetensors|model.safetensors.index.json"
WEIGHTS = f"{SAFE_WEIGHTS}|pytorch_model.bin|pytorch_model.bin.index.json"


def looks_local(name: str) -> bool:
    """Whether *name* can only be a path: it exists, or is written like one."""
    return name.startswith((".", "/", "~")) or Path(name).exists() or name.count("/") > 1


def _local(weights_path: str | None, model_name: str) -> Path | None:
    if weights_path is None and not looks_local(model_name):
        return None
    path = Path(weights_path or model_name).expanduser()
    if not path.exists():
        parameter = "weights_path" if weights_path is not None else "model_name"
        raise FileNotFoundError(f"{parameter} is {path}, and nothing is there; correct it, or remove it for the hub")
    return path


def _hint(model_name: str, wanted: str, local: Path | None) -> str:
    if local is not None and looks_local(model_name):
        return "the folder must hold a model as transformers saves it"
    return f"`hf download {model_name}` fetches it, for {wanted} and what belongs to it"


def _from_hub(repo: str, filename: str) -> Path:
    hub = _hub()
    try:
        return Path(hub.hf_hub_download(repo, filename))
    except Exception as error:
        raise _not_fetched(repo, filename, error) from error


def _snapshot(repo: str, needed: Sequence[str], patterns: Sequence[str]) -> Path:
    hub = _hub()
    files = [name for entry in needed for name in entry.split("|")]
    offline = hub.constants.HF_HUB_OFFLINE
    try:
        if not offline:
            files = _preferred(needed, {file.rfilename for file in hub.model_info(repo).siblings})
        # model.safetensors.index.json lists model-00001-of-00002.safetensors and so on.
        shards = [name.replace(".", "-*.", 1).removesuffix(".index.json") for name in files if "index" in name]
        return Path(hub.snapshot_download(repo, allow_patterns=[*files, *shards, *patterns]))
    except Exception as error:
        raise _not_fetched(repo, ", ".join(entry.replace("|", " or ") for entry in needed), error) from error


def _preferred(needed: Sequence[str], there: set[str]) -> list[str]:
    """Of each entry's alternatives the first that the repository has."""
    return [next((name for name in entry.split("|") if name in there), entry.split("|")[0]) for entry in needed]


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ScorerLoadError(
            f"{error}: models of the hub need huggingface_hub; install 'reward-service[models]' or give weights_path"
        ) from error
    return huggingface_hub


def _not_fetched(repo: str, what: str, error: Exception) -> FileNotFoundError:
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    why = "HF_HUB_OFFLINE is set and it is not in the local cache" if offline else f"{type(error).__name__}"
    return FileNotFoundError(
        f"{what} of {repo} could not be had from the hub: {why}. Where there is a network, run"
        f" `hf download {repo} --local-dir FOLDER`, copy FOLDER here and give it as weights_path"
    )
