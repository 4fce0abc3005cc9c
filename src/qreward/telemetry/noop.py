"""The span of an exporter that is switched off."""

from __future__ import annotations

from typing import Any


class NoOpSpan:
    """Takes everything that a span takes and does nothing."""

    def set_attribute(self, key: str, value: Any) -> None:
        pass

    def set_status(self, *args: Any, **kwargs: Any) -> None:
        pass

    def add_event(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record_exception(self, *args: Any, **kwargs: Any) -> None:
        pass

    def is_recording(self) -> bool:
        return False

    def end(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> NoOpSpan:
        return self

    def __exit__(self, *exc: object) -> None:
        pass
