"""One try at a stream and the permit that it holds."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

from qreward.events import Call, Observer
from qreward.runtime.attempt import book_failure
from qreward.runtime.gate import Gate
from qreward.runtime.limits import Permit
from qreward.runtime.watch import attempt_ended, attempt_started

T = TypeVar("T")


class Source(Generic[T]):
    """Settles its permit exactly once, however it ends."""

    def __init__(
        self,
        opened: Callable[[], AsyncIterator[T]],
        gate: Gate,
        permit: Permit,
        call: Call,
        observer: Observer | None,
        hedge: bool = False,
    ) -> None:
        self._gate, self._call, self._observer = gate, call, observer
        self._permit: Permit | None = permit
        call.attempts += 1
        self._record = None if observer is None else attempt_started(observer, call, hedge)
        self._opened = opened
        self._items: AsyncIterator[T] | None = None

    async def next(self) -> T:
        if self._items is None:
            self._items = self._opened()
        return await anext(self._items)

    def succeeded(self) -> None:
        permit = self._settle(None)
        if permit is not None:
            self._gate.succeeded(permit)

    def failed(self, exc: BaseException) -> None:
        """It ended with *exc*, a failure or nobody's fault."""
        permit = self._settle(exc)
        if permit is not None:
            book_failure(self._gate, permit, exc)

    def _settle(self, error: BaseException | None) -> Permit | None:
        permit, self._permit = self._permit, None
        if permit is not None:
            attempt_ended(self._observer, self._call, self._record, error)
        return permit

    async def close(self) -> None:
        """Close the generator, so that its connection goes back or down; errors while closing are not news."""
        self.failed(GeneratorExit())  # where nothing has settled it before
        close = getattr(self._items, "aclose", None)
        if close is not None:
            with contextlib.suppress(Exception):
                await close()
