"""Says which extra to install when a command needs more than the base packages."""

from __future__ import annotations

import importlib.util

from reward_service.errors import ConfigError

SERVER = ("pydantic", "yaml", "fastapi", "uvicorn", "uvloop", "ray", "numpy")
CONFIG = ("pydantic", "yaml")


def require(extra: str, modules: tuple[str, ...], what: str) -> None:
    """Raise ConfigError when one of *modules*, which the extra *extra* installs, is not there for *what*."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {', '.join(missing)}; pip install 'reward-service[{extra}]'")
