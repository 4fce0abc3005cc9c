"""Fixtures that several folders use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qreward.runtime import clock
from qreward.testing.moment import Now


@pytest.fixture
def now() -> Iterator[Now]:
    """The runtime's clock, moved by hand."""
    now = Now()
    clock.install(now)
    yield now
    clock.reset()
