"""WaitQueue against a plain list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.priority import Entry, WaitQueue

actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 9)),
        st.tuples(st.just("pop"), st.just(0)),
        st.tuples(st.just("remove"), st.integers(0, 200)),
        st.tuples(st.just("wait"), st.integers(0, 40)),
    ),
    max_size=120,
)


@given(actions)
def test_the_queue_behaves_like_its_description(steps: list[tuple[str, int]]) -> None:
    """Lowest priority number first, oldest first inside; over a minute old counts as 0; removed ones never come."""
    queue: WaitQueue[int] = WaitQueue(starvation_s=60.0)
    model: list[tuple[int, float, int]] = []  # (priority, since, sequence)
    entries: dict[int, Entry[int]] = {}
    now, sequence = 0.0, 0
    for action, value in steps:
        if action == "wait":
            now += value
        elif action == "put":
            entries[sequence] = queue.put(sequence, value, now)
            model.append((value, now, sequence))
            sequence += 1
        elif action == "remove" and value in entries:
            known = [m for m in model if m[2] == value]
            assert queue.remove(entries[value]) == bool(known)
            model = [m for m in model if m[2] != value]
        elif action == "pop":
            model.sort(key=lambda m: (0 if now - m[1] > 60.0 else m[0], m[2]))
            expected = model.pop(0)[2] if model else None
            assert queue.peek(now) == expected
            assert queue.pop(now) == expected
        assert len(queue) == len(model)
    in_order = sorted(model, key=lambda m: (0 if now - m[1] > 60.0 else m[0], m[2]))
    assert [entry.item for entry in queue.entries(now)] == [m[2] for m in in_order]


@pytest.mark.parametrize("priority", [-1, 10])
def test_a_priority_outside_the_scale_is_refused(priority: int) -> None:
    """The message names the value and the scale."""
    with pytest.raises(ValueError, match=f"0 .* 9 .*{priority}"):
        WaitQueue[int]().put(1, priority, 0.0)


def test_removed_entries_do_not_pile_up() -> None:
    """A hundred thousand calls that gave up behind one that waits leave no memory behind."""
    queue: WaitQueue[int] = WaitQueue()
    queue.put(0, 5, 0.0)
    for i in range(100_000):
        queue.remove(queue.put(i, 5, 0.0))
    assert len(queue) == 1
    assert sum(len(level) for level in queue._levels) < 1000


def test_an_old_call_of_low_priority_goes_before_a_new_one_of_high() -> None:
    """After a minute a call of priority 9 is served like one of priority 0, and it is the older one."""
    queue: WaitQueue[str] = WaitQueue(starvation_s=60.0)
    queue.put("old", 9, 0.0)
    queue.put("urgent", 0, 50.0)
    assert queue.peek(60.0) == "urgent"
    assert queue.peek(60.1) == "old"


def test_an_empty_queue_gives_nothing() -> None:
    """Nothing to look at, nothing to take; an entry leaves once."""
    queue: WaitQueue[int] = WaitQueue()
    entry = queue.put(1, 0, 0.0)
    assert queue.remove(entry)
    assert not queue.remove(entry)
    assert (queue.peek(0.0), queue.pop(0.0), len(queue)) == (None, None, 0)
    taken = queue.put(2, 0, 0.0)
    assert queue.pop(0.0) == 2
    assert not queue.remove(taken)
