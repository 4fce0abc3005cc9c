"""Turns between priorities, deadlines inside them, groups beside each other."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qreward.policy.fair import LEVELS, FairEntry, FairQueue

PRIORITIES = st.integers(0, LEVELS - 1)


def serve(queue: FairQueue[int], turns: int) -> list[int]:
    return [queue.take(queue.heads()[0]) for _ in range(turns)]


@given(st.sets(PRIORITIES, min_size=1))
def test_turns_are_shared_by_weight(priorities: set[int]) -> None:
    """While all of them wait, priority p gets 10 - p of the turns that the weights add up to, one more or less."""
    queue: FairQueue[int] = FairQueue()
    total = sum(LEVELS - p for p in priorities)
    for priority in priorities:
        for _ in range(4 * total):
            queue.put(priority, priority, 0.0)
    counts = Counter(serve(queue, 3 * total))
    for priority in priorities:
        assert abs(counts[priority] - 3 * (LEVELS - priority)) <= 1


@given(st.lists(PRIORITIES, min_size=1, max_size=40))
def test_the_least_urgent_wait_for_a_known_number_of_turns(others: list[int]) -> None:
    """However many come afterwards, a task at the head of priority 9 is served within the weights' sum of turns."""
    queue: FairQueue[int] = FairQueue()
    queue.put(-1, 9, 0.0)
    waited = 0
    while True:
        for i in range(2):
            queue.put(waited, others[(waited + i) % len(others)], 0.0)
        if queue.take(queue.heads()[0]) == -1:
            break
        waited += 1
        assert waited <= sum(range(1, LEVELS + 1))


def test_turns_are_not_saved_up() -> None:
    """A priority that had nothing to do while another was served does not get all the turns afterwards."""
    queue: FairQueue[int] = FairQueue()
    for _ in range(400):
        queue.put(5, 5, 0.0)
    serve(queue, 300)
    for _ in range(100):
        queue.put(6, 6, 0.0)
    counts = Counter(serve(queue, 18))
    assert counts[5] >= 9
    assert counts[6] >= 7


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 1000.0)), min_size=1, max_size=40))
def test_the_earliest_deadline_goes_first(deadlines: list[float | None]) -> None:
    """Inside a priority: by deadline, or by a minute of patience where that is sooner; equals in order of arrival."""
    queue: FairQueue[int] = FairQueue()
    due = []
    for i, deadline in enumerate(deadlines):
        queue.put(i, 5, float(i), deadline)
        due.append(i + 60.0 if deadline is None else min(deadline, i + 60.0))
    assert serve(queue, len(due)) == sorted(range(len(due)), key=lambda i: (due[i], i))


def test_deadlines_do_not_starve_those_without() -> None:
    """A task without a deadline goes before all that are due more than a minute after it came."""
    queue: FairQueue[str] = FairQueue()
    queue.put("patient", 5, 0.0)
    queue.put("due sooner", 5, 30.0, 59.0)
    queue.put("due later", 5, 30.0, 61.0)
    assert [queue.take(queue.heads()[0]) for _ in range(3)] == ["due sooner", "patient", "due later"]


def test_every_group_has_a_head() -> None:
    """A task that nothing can serve now stands in the way of its own group alone."""
    queue: FairQueue[str] = FairQueue()
    queue.put("stuck", 0, 0.0, group="a")
    queue.put("behind it", 0, 0.0, group="a")
    queue.put("other", 0, 1.0, group="b")
    queue.put("low", 9, 0.0, group="a")
    assert [entry.item for entry in queue.heads()] == ["stuck", "other", "low"]


@pytest.mark.parametrize("priority", [-1, LEVELS])
def test_other_priorities_are_refused(priority: int) -> None:
    """A priority outside 0 to 9 is an error that shows it, and nothing is queued."""
    queue: FairQueue[int] = FairQueue()
    with pytest.raises(ValueError, match=str(priority)):
        queue.put(1, priority, 0.0)
    assert len(queue) == 0


class AgainstAList(RuleBasedStateMachine):
    """The queue holds exactly what was put and neither taken nor removed."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: FairQueue[int] = FairQueue()
        self.waiting: list[FairEntry[int]] = []
        self.left: list[FairEntry[int]] = []
        self.groups: dict[int, int] = {}
        self.count = 0

    @rule(priority=PRIORITIES, group=st.integers(0, 2), deadline=st.one_of(st.none(), st.floats(0.0, 100.0)))
    def put(self, priority: int, group: int, deadline: float | None) -> None:
        self.count += 1
        self.groups[self.count] = group
        self.waiting.append(self.queue.put(self.count, priority, float(self.count), deadline, group))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.queue.heads()))
        self.queue.take(entry)
        self.waiting.remove(entry)
        self.left.append(entry)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.waiting))
        self.queue.remove(entry)
        self.waiting.remove(entry)
        self.left.append(entry)

    @precondition(lambda self: self.left)
    @rule(data=st.data())
    def remove_what_has_left(self, data: st.DataObject) -> None:
        self.queue.remove(data.draw(st.sampled_from(self.left)))

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert {entry.item for entry in self.queue} == {entry.item for entry in self.waiting}

    @invariant()
    def heads_are_the_first_of_their_group(self) -> None:
        first: dict[tuple[int, int], FairEntry[int]] = {}
        for entry in self.waiting:
            key = entry.priority, self.groups[entry.item]
            if key not in first or (entry.due, entry.sequence) < (first[key].due, first[key].sequence):
                first[key] = entry
        assert {e.item for e in self.queue.heads()} == {e.item for e in first.values()}


TestAgainstAList = AgainstAList.TestCase
TestAgainstAList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
