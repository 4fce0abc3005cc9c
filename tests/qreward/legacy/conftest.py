"""A clock that moves when told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from qreward.runtime import clock


class Now:
    """Seconds; also the runtime's clock while a test uses the fixture."""

    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def now() -> Iterator[Now]:
    now = Now()
    clock.install(now)
    yield now
    clock.reset()
