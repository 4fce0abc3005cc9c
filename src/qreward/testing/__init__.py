"""Tools for tests and examples: virtual time, and a judge that runs offline and fails on demand."""

from typing import TYPE_CHECKING, Any

from qreward.testing.virtual import Deadlock, VirtualLoop, elapsed, run_virtual
from qreward.testing.waiting import eventually

if TYPE_CHECKING:
    from qreward.testing.faults import Delay, Faults, Reply
    from qreward.testing.judge import FakeJudge

__all__ = ["Deadlock", "Delay", "FakeJudge", "Faults", "Reply", "VirtualLoop", "elapsed", "eventually", "run_virtual"]


def __getattr__(name: str) -> Any:
    # Virtual time needs no server package.
    if name == "FakeJudge":
        from qreward.testing.judge import FakeJudge

        return FakeJudge
    if name in ("Delay", "Faults", "Reply"):
        from qreward.testing import faults

        return getattr(faults, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
