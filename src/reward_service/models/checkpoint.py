"""Checkpoints are read without running anything that lies in them, and must fit their network key by key."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from reward_service.errors import ScorerLoadError

# Where training scripts put the tensors when the file holds more than them.
WRAPPERS = ("state_dict", "model_state_dict", "model", "module")
NAMED_AT_MOST = 8


def read_state(path: Path) -> dict[str, torch.Tensor]:
    """The tensors of *path* by key, on the CPU and mapped from the file.

    Safetensors, or a torch file, of which nothing but tensors and plain containers is unpickled. Raises
    ScorerLoadError for a file that needs more, or that is no checkpoint.
    """
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        try:
            return dict(load_file(path))
        except Exception as error:
            raise ScorerLoadError(f"{path} cannot be read as safetensors: {error}; fetch it again") from error
    loaded = unwrap(_torch_load(path))
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ScorerLoadError(f"{path} holds no table of tensors by name; is it the right file?")
    return loaded


def _torch_load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        raise ScorerLoadError(
            f"{path} holds Python objects besides tensors, which can run code when they are loaded:"
            f" {_reason(error)}. Convert the file on a machine where you trust it:"
            " safetensors.torch.save_file(torch.load(FILE, weights_only=False)['state_dict'], 'model.safetensors')"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ScorerLoadError(f"{path} cannot be read as a torch file: {_reason(error)}; fetch it again") from error


def _is_zip(path: Path) -> bool:
    # Files from before torch 1.6 are plain pickles, which cannot be mapped.
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _reason(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if "nsupported" in line), str(error)[:200])


def unwrap(loaded: Any) -> Any:
    """What a training script wrapped: the table inside ``{"state_dict": …}`` and its like."""
    while isinstance(loaded, dict):
        inner = next((loaded[key] for key in WRAPPERS if isinstance(loaded.get(key), dict)), None)
        if inner is None:
            break
        loaded = inner
    return loaded


def load_exactly(
    module: torch.nn.Module, state: dict[str, torch.Tensor], source: Path, ignore: Iterable[str] = ()
) -> None:
    """Load *state* into *module*; a key that is missing, left over or misshapen is a ScorerLoadError that names it.

    ignore: patterns of keys in *state* that the network has no use for.
    """
    patterns = [re.compile(pattern) for pattern in ignore]
    state = {key: value for key, value in state.items() if not any(pattern.fullmatch(key) for pattern in patterns)}
    own = module.state_dict()
    check_keys(own, state, source)
    module.load_state_dict(state, strict=True)


def check_keys(own: dict[str, Any], state: dict[str, Any], source: Path) -> None:
    """Compare the keys and shapes that a network has with those of a checkpoint; raises ScorerLoadError."""
    misshapen = [
        f"{key} {tuple(state[key].shape)} instead of {tuple(own[key].shape)}"
        for key in own
        if key in state and state[key].shape != own[key].shape
    ]
    missing = [key for key in own if key not in state]
    left_over = [key for key in state if key not in own]
    _refuse(source, missing, left_over, misshapen)


def from_pretrained(cls: Any, folder: Path, dtype: torch.dtype, **options: Any) -> Any:
    """``cls.from_pretrained`` of a local *folder*, in inference mode, as strict as `load_exactly`.

    Nothing is fetched, no code of the folder runs, and safetensors are preferred.
    """
    # Sizes that do not match are let through, to be refused below by name.
    options = {"attn_implementation": "sdpa", "ignore_mismatched_sizes": True, "output_loading_info": True, **options}
    try:
        model, info = cls.from_pretrained(folder, dtype=dtype, local_files_only=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise ScorerLoadError(f"{folder} cannot be loaded as {cls.__name__}: {error}") from error
    misshapen = [
        f"{key} {tuple(there)} instead of {tuple(wanted)}" for key, there, wanted in info.get("mismatched_keys", ())
    ]
    _refuse(folder, info["missing_keys"], info["unexpected_keys"], misshapen)
    return model.eval().requires_grad_(False)


def _refuse(source: Path, missing: Iterable[str], left_over: Iterable[str], misshapen: Iterable[str]) -> None:
    problems = [
        *_named("without", sorted(missing)),
        *_named("with unknown", sorted(left_over)),
        *_named("with wrong shapes:", sorted(misshapen)),
    ]
    if problems:
        raise ScorerLoadError(f"{source} is not the checkpoint of this model: it comes {'; '.join(problems)}")


def _named(what: str, keys: Sequence[str]) -> Iterator[str]:
    if keys:
        more = f" and {len(keys) - NAMED_AT_MOST} more" if len(keys) > NAMED_AT_MOST else ""
        yield f"{what} {', '.join(keys[:NAMED_AT_MOST])}{more}"
