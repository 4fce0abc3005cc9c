"""Which source takes a task, and when to look again: price, deadline, health, quotas, speed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from qreward.client.pool.sources import Source
from qreward.client.pool.state import NEVER
from qreward.client.pool.work import Work

_RESERVE = 0.2  # of the time a task was given, kept for a dearer source
_TIMES_MEAN = 2.0
_MARGIN = 1.5  # on the estimate of what the cheaper sources can still do in time


@dataclass(slots=True, eq=False)
class Task:
    """A piece of work on its way: since when, until when, and where it failed already. Times are monotonic seconds."""

    work: Work
    priority: int
    since: float
    deadline: float | None
    candidates: Sequence[Source]
    avoid: set[Source] = field(default_factory=set)
    hung: int = 0  # attempts that were given up because their source did not answer

    @property
    def what(self) -> tuple[str, str]:
        """Tasks of equal kind and name compete for the same sources."""
        return self.work.kind, self.work.name

    @property
    def group(self) -> Hashable:
        """Tasks that any source would take or refuse alike, so that the first of them may speak for all."""
        return self.what, self.deadline is None, frozenset(source.name for source in self.avoid)


@dataclass(frozen=True, slots=True)
class Choice:
    """The source, or None and the seconds until it is worth looking again (infinity = when a task ends)."""

    source: Source | None
    wait: float = NEVER


def choose(task: Task, now: float, urgent: int = 1, spill_on_outage: bool = False) -> Choice:
    """The cheapest source that is in service, has room and can make the deadline.

    A dearer one is considered only when the deadline needs it: the cheaper ones are away for too long or too slow for
    the *urgent* tasks that wait with deadlines, or the last moment has come at which it can still answer. With
    *spill_on_outage* also while no cheaper one is in service.
    """
    allowed: list[Source] = []
    wait = NEVER
    for source in task.candidates:
        cheaper = [s for s in task.candidates if s.cost(task.work) < source.cost(task.work)]
        spill = _spill_in(task, source, cheaper, now, urgent) if cheaper else 0.0
        if spill <= 0.0 or (spill_on_outage and all(s.state.status(now) == "ejected" for s in cheaper)):
            allowed.append(source)
        else:
            wait = min(wait, spill)
    ready: list[Source] = []
    tokens = task.work.tokens
    for source in fresh(task, allowed, now) or allowed:
        pause = max(source.state.wait(now, tokens), source.state.returns_in(now))
        if pause > 0.0:
            wait = min(wait, pause)
        elif source.room() and source.state.health.may_try(now):
            ready.append(source)
    if not ready:
        return Choice(None, wait)
    in_time = [s for s in ready if _expected_s(s) <= _left(task, now)]
    return Choice(min(in_time or ready, key=lambda s: (s.cost(task.work), _busy_s(s, ready) / s.weight)), 0.0)


def fresh(task: Task, sources: Sequence[Source], now: float) -> list[Source]:
    """Those of *sources* that are in service and where *task* has not failed yet."""
    return [source for source in sources if source not in task.avoid and source.state.in_service(now)]


def _drain_s(sources: Sequence[Source], tasks: int) -> float:
    """Seconds in which *sources* together answer *tasks* more; 0.0 while their speed is not known."""
    known = [s.state for s in sources if s.state.mean_s]
    per_s = sum(state.max_concurrent / (state.mean_s or 1.0) for state in known)
    slowest = max((state.mean_s or 0.0 for state in known), default=0.0)
    return _MARGIN * (tasks / per_s + slowest) if per_s else 0.0


def _left(task: Task, now: float) -> float:
    return NEVER if task.deadline is None else task.deadline - now


def _expected_s(source: Source) -> float:
    return source.state.mean_s or 0.0


def _busy_s(source: Source, ready: Sequence[Source]) -> float:
    """The expected time of one more task; a source that is not measured yet counts like the slowest that is."""
    slowest = max((s.state.mean_s for s in ready if s.state.mean_s is not None), default=1.0)
    return (source.state.mean_s or slowest) * (source.state.inflight + 1) / source.state.max_concurrent


def _spill_in(task: Task, source: Source, cheaper: Sequence[Source], now: float, urgent: int) -> float:
    """Seconds until *source* may be used although cheaper ones exist; 0.0 = now, infinity = never."""
    if task.deadline is None:
        return NEVER
    left = task.deadline - now
    away = [s.state.returns_in(now) + _expected_s(s) for s in cheaper]
    if min(away) > left or _drain_s(cheaper, urgent) > left:
        return 0.0
    reserve = max(_TIMES_MEAN * _expected_s(source), _RESERVE * (task.deadline - task.since))
    return max(0.0, left - reserve)
