"""What a callable really is, behind partials, bound methods and objects with a ``__call__``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def innermost(func: Callable[..., Any]) -> Any:
    """The callable inside of any number of `functools.partial`."""
    inner: Any = func
    while isinstance(inner, functools.partial):
        inner = inner.func
    return inner


def code_of(func: Callable[..., Any]) -> Any:
    """The function whose kind (async, generator) is that of *func*: of an object its class's ``__call__``."""
    inner = innermost(func)
    return inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__
