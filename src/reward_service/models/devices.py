"""Devices and number types by name: what is not there is an error, never a silent run on the CPU."""

from __future__ import annotations

import torch

from reward_service.errors import ScorerLoadError

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def pick_device(name: str) -> torch.device:
    """The device *name* ("cuda", "cuda:1", "cpu", …); ScorerLoadError when it is not there."""
    try:
        device = torch.device(name)
        # The one question that every kind of device answers the same way: does it hold a tensor?
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ScorerLoadError(
            f"device {name!r} cannot be used ({_first_line(error)}); torch {torch.__version__} sees"
            f" {torch.cuda.device_count()} CUDA devices. Set num_gpus for this reward, or device: cpu"
        ) from error
    return device


def pick_dtype(name: str) -> torch.dtype:
    """float32, float16 or bfloat16; ValueError for anything else."""
    if name not in DTYPES:
        raise ValueError(f"dtype is {name!r}; choose one of: {', '.join(DTYPES)}")
    return DTYPES[name]


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
