"""The simulator of this folder, for its tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def sim() -> ModuleType:
    """`simulator.py`, which sits beside this file and in no package."""
    spec = importlib.util.spec_from_file_location("adaptive_simulator", Path(__file__).with_name("simulator.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
