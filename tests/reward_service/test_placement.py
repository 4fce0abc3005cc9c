"""Promises of `check_placement`: it refuses what cannot be placed, with the arithmetic, and nothing else."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_service.config import load_config_text
from reward_service.errors import PlacementError
from reward_service.workers.placement import Demand, Node, check_placement, demands_of

TWO_NODES = [Node("gpu-0", 8, 32), Node("gpu-1", 8, 32)]


def findings(demands: list[Demand], nodes: list[Node]) -> list[str]:
    """The findings of the refusal, without its table."""
    with pytest.raises(PlacementError) as caught:
        check_placement(demands, nodes)
    return [line[2:] for line in str(caught.value).splitlines() if line.startswith("- ")]


def test_the_refusal_shows_the_arithmetic_and_everything_that_is_wrong() -> None:
    """A budget that is too large and an actor larger than any node are told together, below one table."""
    demands = [Demand("clip", 0.5, 1, 2), Demand("geneval2", 16, 4, 1), Demand("hpsv3", 1, 1, 3)]
    with pytest.raises(PlacementError) as caught:
        check_placement(demands, TWO_NODES)
    assert (
        str(caught.value)
        == """\
the cluster cannot hold this configuration:
                      replicas x GPUs  replicas x CPUs
  clip                    2 x 0.5 = 1        2 x 1 = 2
  geneval2                1 x 16 = 16        1 x 4 = 4
  hpsv3                     3 x 1 = 3        3 x 1 = 3
  wanted                           20                9
  2 nodes like gpu-0       2 x 8 = 16      2 x 32 = 64
  cluster                          16               64
- 20 GPUs wanted, 16 GPUs in the cluster, 4 GPUs too few: lower num_replicas or num_gpus, or add a node
- geneval2: one replica wants 16 GPUs and 4 CPUs on one node, and no node has that; \
the largest is gpu-0 with 8 GPUs and 32 CPUs: lower what a replica wants, or add a larger node"""
    )


@pytest.mark.parametrize(
    ("demands", "nodes", "finding"),
    [
        ([Demand("a", 1, 1, 1)], [], "the cluster has no live node"),
        ([Demand("a", 0, 0, 1)], [], "the cluster has no live node"),
        ([Demand("a", 0, 3, 3)], [Node("n", 0, 8)], "9 CPUs wanted, 8 CPUs in the cluster, 1 CPU too few"),
        (
            [Demand("a", 0, 9, 1)],
            [Node("n", 4, 8), Node("m", 0, 8)],
            "a: one replica wants 9 CPUs on one node",
        ),
        (
            [Demand("a", 1, 8, 1)],
            [Node("g", 4, 4), Node("c", 0, 64)],
            "the largest is g with 4 GPUs and 4 CPUs",
        ),
        (
            [Demand("a", 4, 1, 3)],
            [Node("n", 6, 9), Node("m", 6, 9)],
            "a: 3 x (4 GPUs) wanted, but the nodes have room for 2 (1 + 1)",
        ),
        (
            [Demand("a", 4, 1, 1), Demand("b", 2, 1, 2)],
            [Node("n", 5, 9), Node("m", 3, 9)],
            "a, b: 4 x (2 GPUs) wanted, but the nodes have room for 3 (2 + 1)",
        ),
        (
            [Demand("a", 0.6, 1, 3)],
            [Node("n", 2, 9)],
            "3 x (0.6 GPUs) wanted, but the nodes have room for 2 (2)",
        ),
        (
            [Demand("a", 0.3, 1, 4), Demand("b", 1, 1, 1)],
            [Node("n", 2.2, 9)],
            "a, b: 7 x (0.3 GPUs) wanted, but the nodes have room for 6 (6)",
        ),
        (
            [Demand("a", 2, 5, 3)],
            [Node("n", 8, 9), Node("m", 0, 9)],
            "a: 3 x (2 GPUs and 5 CPUs) wanted, but the nodes have room for 1 (1 + 0)",
        ),
    ],
)
def test_what_cannot_be_placed_is_refused(demands: list[Demand], nodes: list[Node], finding: str) -> None:
    """Sums, single replicas and pieces that no arrangement of the nodes can hold are named."""
    assert any(finding in found for found in findings(demands, nodes))


@pytest.mark.parametrize(
    ("demands", "nodes"),
    [
        ([], []),
        ([Demand("a", 0, 0, 100)], [Node("n", 0, 0)]),
        ([Demand("geneval2", 2, 1, 1), Demand("ur", 2, 1, 2), Demand("light", 1, 1, 10)], TWO_NODES),
        ([Demand("third", 1 / 3, 1, 3)], [Node("n", 1, 3)]),
        ([Demand("tenth", 0.1, 0.1, 10)], [Node("n", 1, 1)]),
        ([Demand("a", 0.29, 0, 1), Demand("b", 0.71, 0, 1)], [Node("n", 1, 0)]),
    ],
)
def test_what_exactly_fits_is_accepted(demands: list[Demand], nodes: list[Node]) -> None:
    """Full clusters pass, and binary fractions do not add up to a little too much."""
    check_placement(demands, nodes)


def test_the_demands_are_those_of_the_config() -> None:
    """`demands_of` has one demand per reward, in order."""
    config = load_config_text(
        "rewards:\n"
        "  - {name: big, scorer: ocr, num_gpus: 2, num_cpus: 4, num_replicas: 3}\n"
        "  - {name: small, scorer: ocr, num_gpus: 0.5}\n"
    )
    assert demands_of(config) == [Demand("big", 2, 4, 3), Demand("small", 0.5, 1, 1)]


def _can_be_packed(demands: list[Demand], nodes: list[Node]) -> bool:
    """Whether some arrangement exists, by trying them all; a GPU is shared by parts or held whole."""
    replicas = sorted(((_exact(d.gpus), _exact(d.cpus)) for d in demands for _ in range(d.replicas)), reverse=True)
    free = tuple((_exact(node.cpus), (Fraction(1),) * int(node.gpus)) for node in nodes)
    return _place(tuple(replicas), free, set())


def _exact(amount: float) -> Fraction:
    return Fraction(str(amount))


def _place(
    replicas: tuple[tuple[Fraction, Fraction], ...],
    free: tuple[tuple[Fraction, tuple[Fraction, ...]], ...],
    dead_ends: set[object],
) -> bool:
    if not replicas:
        return True
    state = (len(replicas), tuple(sorted(free)))
    if state in dead_ends:
        return False
    (gpus, cpus), rest = replicas[0], replicas[1:]
    for index, (free_cpus, devices) in enumerate(free):
        for left in _gpu_choices(devices, gpus) if cpus <= free_cpus else ():
            after = (*free[:index], (free_cpus - cpus, left), *free[index + 1 :])
            if _place(rest, after, dead_ends):
                return True
    dead_ends.add(state)
    return False


def _gpu_choices(devices: tuple[Fraction, ...], gpus: Fraction) -> set[tuple[Fraction, ...]]:
    if gpus == 0:
        return {devices}
    if gpus >= 1:
        whole = devices.count(Fraction(1))
        others = tuple(device for device in devices if device != 1)
        left = others + (Fraction(1),) * (whole - int(gpus)) + (Fraction(0),) * int(gpus)
        return {tuple(sorted(left))} if whole >= gpus else set()
    return {
        tuple(sorted((*devices[:index], device - gpus, *devices[index + 1 :])))
        for index, device in enumerate(devices)
        if device >= gpus
    }


_demands = st.lists(
    st.builds(
        Demand,
        reward=st.just("r"),
        gpus=st.sampled_from([0.0, 0.25, 0.3, 0.35, 0.5, 0.6, 1.0, 2.0, 3.0]),
        cpus=st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0]),
        replicas=st.integers(1, 3),
    ),
    min_size=1,
    max_size=3,
)
_nodes = st.lists(
    st.builds(Node, name=st.just("n"), gpus=st.integers(0, 4), cpus=st.integers(0, 6)), min_size=1, max_size=3
)


@settings(max_examples=300)
@given(_demands, _nodes)
def test_what_fits_is_never_refused(demands: list[Demand], nodes: list[Node]) -> None:
    """Whenever a brute-force packer finds an arrangement, the check passes."""
    try:
        check_placement(demands, nodes)
    except PlacementError:
        assert not _can_be_packed(demands, nodes)


@given(
    st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]),
    st.integers(1, 6),
    st.lists(st.integers(0, 5), min_size=1, max_size=3),
)
def test_for_replicas_of_one_size_the_check_is_exact(gpus: float, replicas: int, per_node: list[int]) -> None:
    """Equal replicas on nodes with enough CPUs are refused exactly when no arrangement exists."""
    demands = [Demand("r", gpus, 1, replicas)]
    nodes = [Node(f"n{index}", count, 6) for index, count in enumerate(per_node)]
    try:
        check_placement(demands, nodes)
        accepted = True
    except PlacementError:
        accepted = False
    assert accepted == _can_be_packed(demands, nodes)
