"""What every test of the package relies on."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """The command line sets levels for its process; other tests share this one."""
    loggers = [logging.getLogger(name) for name in ("reward_service", "qreward")]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)
