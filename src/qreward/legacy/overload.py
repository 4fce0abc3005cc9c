"""`OverloadChecker`: does an exception speak of an overloaded server?"""

from __future__ import annotations

from qreward.globals import LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING, OVERLOAD_EXCEPTIONS, SYSTEM_OVERLOAD_INDICATORS
from qreward.policy.classify import CHAIN_DEPTH, causes, is_overload

MAX_EXCEPTION_CHAIN_DEPTH = CHAIN_DEPTH


class OverloadChecker:
    """Judges by status and by type, never by the words of a message."""

    @staticmethod
    def check(exception: BaseException) -> bool:
        """Whether *exception*, or one that caused it (50 deep), is an overload.

        That is what `qreward.policy.classify` calls so, and what `qreward.globals` names: timeouts, broken
        connections, exhausted resources.
        """
        return is_overload(exception) or any(map(_named, causes(exception)))


def _named(exc: BaseException) -> bool:
    cls = type(exc)
    if isinstance(exc, OSError) and exc.errno is not None and f"errno {exc.errno}" in SYSTEM_OVERLOAD_INDICATORS:
        return True
    if cls is OSError:
        return False
    if cls.__name__ in OVERLOAD_EXCEPTIONS or f"{cls.__module__}.{cls.__name__}" in OVERLOAD_EXCEPTIONS:
        return True
    return any(
        base.__name__ in LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING.get(base.__module__.partition(".")[0], ())
        for base in cls.__mro__
    )
