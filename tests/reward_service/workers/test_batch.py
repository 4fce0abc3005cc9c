"""A batch costs the guilty items only, whatever a scorer returns or raises."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_service.workers.batch import BatchRunner, entries_of, out_of_memory, unusable_device


@dataclass
class Picky:
    """Scores numbers with themselves; raises when a batch holds a guilty one, or is larger than the memory."""

    guilty: set[int]
    memory: int = 1000
    sizes: list[int] = field(default_factory=list)

    def score(self, items):
        self.sizes.append(len(items))
        if len(items) > self.memory:
            raise MemoryError
        if self.guilty & set(items):
            raise ValueError("guilty")
        return [{"value": item} for item in items]


@given(st.integers(0, 60), st.sets(st.integers(0, 59)), st.integers(1, 70), st.integers(1, 40))
def test_exactly_the_guilty_fail(count, guilty, limit, memory) -> None:
    """Every item is answered in its place: innocent ones with their own score, guilty ones with an error."""
    scorer = Picky(guilty, memory)
    runner = BatchRunner(scorer, limit)
    entries = runner.run(list(range(count)))
    assert len(entries) == count
    for item, entry in enumerate(entries):
        assert entry.get("s") == (None if item in guilty else {"value": float(item)})
    assert max(scorer.sizes, default=0) <= limit


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_out_of_memory_is_remembered(count, limit, memory) -> None:
    """No item fails for the size of its batch; a size that failed is tried by no later batch."""
    scorer = Picky(set(), memory)
    runner = BatchRunner(scorer, limit)
    for _ in range(2):
        before = len(scorer.sizes)
        assert [entry["s"]["value"] for entry in runner.run(list(range(count)))] == list(range(count))
    assert all(size <= memory for size in scorer.sizes[before:])
    too_large = [size for size in scorer.sizes if size > memory]
    assert len(too_large) == len(set(too_large))


@pytest.mark.parametrize(
    ("results", "error"),
    [
        (None, TypeError), ("ab", TypeError), ({"a": 1}, TypeError), (iter([{}]), TypeError),
        ([], ValueError), ([{"a": 1}] * 3, ValueError),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_an_error_of_the_whole_call(results, error) -> None:
    """Scores are never shifted to make them fit."""
    with pytest.raises(error):
        entries_of(results, 2)


@given(st.lists(st.floats(), min_size=1, max_size=5))
def test_numbers_arrive_as_they_are_or_as_none_with_their_name(values) -> None:
    """Finite values unchanged and in order; others None and listed."""
    (entry,) = entries_of([{f"m{n}": value for n, value in enumerate(values)}], 1)
    assert list(entry["s"].values()) == [value if math.isfinite(value) else None for value in values]
    assert set(entry.get("n", {})) == {f"m{n}" for n, value in enumerate(values) if not math.isfinite(value)}


class Scalar:
    """Like numpy's and torch's: no float, but convertible."""

    def __float__(self) -> float:
        return 0.25


class Broken:
    def __float__(self) -> float:
        raise RuntimeError("no value")


def test_scalars_count_and_everything_else_is_named() -> None:
    """int, numpy-like scalars: numbers. bool, text, None, lists: errors that name sub-metric and value."""
    good, *bad = entries_of(
        [{"a": 1, "b": Scalar()}, *({"a": value} for value in (True, "1.0", None, [1.0], Broken(), b"1", 10**400))], 8
    )
    assert good == {"s": {"a": 1.0, "b": 0.25}}
    for entry in bad:
        assert entry["e"][0] == "TypeError"
        assert "sub-metric 'a'" in entry["e"][1]


def test_an_exception_as_a_result_is_that_items_error() -> None:
    """A scorer that knows which item is bad says so without a second try."""
    entries = entries_of([{"a": 1.0}, ValueError("bad one")], 2)
    assert entries[0] == {"s": {"a": 1.0}}
    assert entries[1]["e"] == ["ValueError", "bad one"]


def test_messages_are_bounded() -> None:
    """A scorer that prints a tensor into its exception does not flood the answer."""

    class Loud:
        def score(self, items):
            raise ValueError("x" * 1_000_000)

    (entry,) = BatchRunner(Loud(), 4).run([1])
    assert len(entry["e"][1]) <= 2_000
    assert len(entry["tb"]) <= 8_000


@pytest.mark.parametrize(
    ("error", "memory", "device"),
    [
        (MemoryError(), True, False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True, False),
        (RuntimeError("CUDA error: device-side assert triggered"), False, True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False, True),
        (ValueError("shapes do not match"), False, False),
        (ValueError("cannot parse 'CUDA error: device-side assert'"), False, False),
    ],
)
def test_which_errors_a_smaller_batch_or_a_new_process_cures(error, memory, device) -> None:
    """Out of memory: smaller batches. A lost CUDA context: a new process."""
    assert out_of_memory(error) is memory
    assert unusable_device(type(error).__name__, str(error)) is device
