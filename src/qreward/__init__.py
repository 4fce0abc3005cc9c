"""Calls to scarce compute, made fast and safe."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"
__author__ = "The qreward authors"

__all__ = ["__author__", "__version__", "client", "utils"]


def __getattr__(name: str) -> Any:
    if name in ("client", "utils"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
