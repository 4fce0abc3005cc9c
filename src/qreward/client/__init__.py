"""Clients for OpenAI-compatible servers: one, several alike, or many kinds of compute united in a pool."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qreward.client.load_balancer import LoadBalanceStrategy
    from qreward.client.manager import OpenAIChatProxyManager
    from qreward.client.model_router import ModelRouter
    from qreward.client.openai import OpenAIChatProxy
    from qreward.client.pool import ComputePool

_HOMES = {
    "ComputePool": "pool",
    "LoadBalanceStrategy": "load_balancer",
    "ModelRouter": "model_router",
    "OpenAIChatProxy": "openai",
    "OpenAIChatProxyManager": "manager",
}

__all__ = ["ComputePool", "LoadBalanceStrategy", "ModelRouter", "OpenAIChatProxy", "OpenAIChatProxyManager"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:  # these import openai
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
