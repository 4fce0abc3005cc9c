"""Types of option values that several commands share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from reward_service.errors import ConfigError

if TYPE_CHECKING:
    from reward_service.config import ServiceConfig

HIGHEST_PORT = 65535


def port(text: str) -> int:
    """A TCP port; 0 is a free one."""
    if not text.isdecimal() or int(text) > HIGHEST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to {HIGHEST_PORT}")
    return int(text)


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def read_config(path: str) -> ServiceConfig:
    """The configuration at *path*; raises ConfigError, for a missing file too."""
    from reward_service.config import load_config

    try:
        return load_config(path)
    except FileNotFoundError as error:
        raise ConfigError(f"{error}; give the path of a YAML file") from error
