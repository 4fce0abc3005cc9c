"""What is measured: shapes of requests, and how many callers send them at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Callers of a sweep.
SWEEP = (1, 4, 16, 64, 200)
# From here on more callers must cost no throughput.
MANY = 16
# CPU of gateway and replicas per item, over the direct loop's with one thread.
CPU_AT_MOST = 1.2


@dataclass(frozen=True)
class Goal:
    """The least that is expected: a multiple of the direct loop's throughput, or items per second."""

    least: float
    # Threads of the direct loop that is compared with; None for items per second.
    threads: int | None = 2

    def __str__(self) -> str:
        return f"{self.least:g}/s" if self.threads is None else f"{self.least:g}×"


@dataclass(frozen=True)
class Shape:
    """One kind of request: *items* images of *size* × *size* pixels, each scored by all of *rewards*."""

    letter: str
    items: int
    rewards: tuple[str, ...]
    size: int
    goal: Goal
    # The fewest callers that keep the service busy: the goal counts from there.
    goal_from: int

    @property
    def title(self) -> str:
        """Items × rewards at the size, or the model for a single one."""
        what = self.rewards[0] if len(self.rewards) == 1 else str(len(self.rewards))
        return f"{self.items} × {what}, {self.size}²"


@dataclass(frozen=True)
class Case:
    """A shape sent by *callers* callers, each waiting for its answer before it sends the next request."""

    shape: Shape
    callers: int

    @property
    def name(self) -> str:
        """As given on the command line: ``n64``."""
        return f"{self.shape.letter}{self.callers}"

    @property
    def goal(self) -> Goal | None:
        """The shape's goal, None below its callers; a single caller of single items has a goal of its own."""
        if self.name == "n1":
            return Goal(0.85, threads=1)
        return self.shape.goal if self.callers >= self.shape.goal_from else None


SHAPES = {
    shape.letter: shape
    for shape in (
        Shape("n", 1, ("noop",), 512, Goal(1.2), 16),
        Shape("s", 1, ("sleep",), 512, Goal(750.0, threads=None), 64),
        Shape("m", 8, ("noop", "sleep", "mean"), 512, Goal(1.5), 16),
        Shape("x", 32, ("noop", "noop2", "sleep", "sleep2", "mean"), 512, Goal(1.8), 8),
        Shape("y", 32, ("noop", "noop2", "sleep", "sleep2", "mean"), 1024, Goal(1.4), 4),
    )
}
STANDARD = "n1,n16,n64,n200,s64,m16,m64,x8,y4,y8"


def parse_cases(text: str) -> list[Case]:
    """Cases from ``n64,x8``; ``n*`` is a sweep over `SWEEP`. Raises ValueError that names the bad part."""
    cases: list[Case] = []
    for part in text.split(","):
        match = re.fullmatch(r"([a-z])(\d{1,4}|\*)", part.strip())
        if match is None or match[1] not in SHAPES or match[2] in ("0", "00"):
            known = "; ".join(f"{shape.letter} = {shape.title}" for shape in SHAPES.values())
            raise ValueError(f"no case {part!r}; give shape and callers, such as n64 or x*. Shapes: {known}")
        callers = SWEEP if match[2] == "*" else (int(match[2]),)
        cases += [Case(SHAPES[match[1]], count) for count in callers]
    return list(dict.fromkeys(cases))
