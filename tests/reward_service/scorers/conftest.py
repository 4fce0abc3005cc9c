"""What the tests of scorers that run models share: tiny checkpoints, stored references, no network."""

from __future__ import annotations

import importlib
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

REFERENCES = Path(__file__).parent / "reference"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the tiny checkpoint of a name, built once."""
    built: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in built:
            folder = tmp_path_factory.mktemp("checkpoint") / name
            importlib.import_module(f"reward_service.testing.tiny.{name}").build(folder)
            built[name] = folder
        return built[name]

    return build


@pytest.fixture
def reference() -> Callable[[str], dict[str, Any]]:
    """What the official package gave: its stored answer under a name."""
    return lambda name: json.loads((REFERENCES / f"{name}.json").read_text(encoding="utf-8"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any attempt to open a connection fails the test."""

    def refuse(*_args: object) -> NoReturn:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
