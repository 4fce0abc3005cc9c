"""What must be renewed in a forked child, where the parent's threads, loops and calls do not run."""

from __future__ import annotations

import os
import weakref
from typing import Protocol, TypeVar


class Renewed(Protocol):
    """Something with locks, waiting calls or connections in it."""

    def after_fork(self) -> None:
        """In the child, before anything else: new locks (another thread may have held them), no call under way."""


T = TypeVar("T", bound=Renewed)
_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_after_fork(thing: T) -> T:
    """Call ``thing.after_fork()`` in every forked child, for as long as *thing* lives; returns it."""
    _renewed.add(thing)
    return thing


def _renew() -> None:
    for thing in list(_renewed):
        thing.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
