"""Whether a cluster can hold the configured replicas; refuses only what provably cannot be placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from reward_service.config import ServiceConfig
from reward_service.errors import PlacementError

# Ray counts resources in ten-thousandths; whole numbers of them add up without rounding.
_STEPS = 10_000


@dataclass(frozen=True)
class Node:
    """A machine of the cluster with all its resources, used or not."""

    name: str
    gpus: float
    cpus: float


@dataclass(frozen=True)
class Demand:
    """What one reward asks for: *replicas* times *gpus* and *cpus*, each replica on one node.

    As in Ray, gpus below 1 are a part of a single GPU, and gpus above 1 are whole GPUs.
    """

    reward: str
    gpus: float
    cpus: float
    replicas: int


def demands_of(config: ServiceConfig) -> list[Demand]:
    """One demand per reward, in the order of the file."""
    return [Demand(r.name, r.num_gpus, r.num_cpus, r.num_replicas) for r in config.rewards]


def check_placement(demands: Sequence[Demand], nodes: Sequence[Node]) -> None:
    """Raise PlacementError, with the arithmetic, when no placement of *demands* on *nodes* exists.

    Refused are sums over the cluster's total, replicas larger than every node, and replicas that fit by
    sum but not in pieces (three replicas of 4 GPUs on two nodes of 6). What passes may still have to wait:
    other users of the cluster are not seen, and Ray does not move replicas once they are placed.
    """
    if not demands:
        return
    wanted = [_Wanted(demand, _Room.least(demand.gpus, demand.cpus)) for demand in demands]
    rooms = [_Room.most(node.gpus, node.cpus) for node in nodes]
    if not nodes:
        findings = ["the cluster has no live node: start one"]
    else:
        small = [want for want in wanted if any(room.pieces(want.size) for room in rooms)]
        large = [want for want in wanted if want not in small]
        findings = [*_over_budget(wanted, rooms), *_too_large(large, nodes), *_fragmented(small, rooms)]
    if findings:
        lines = ["the cluster cannot hold this configuration:", *_table(demands, nodes)]
        raise PlacementError("\n".join([*lines, *(f"- {finding}" for finding in findings)]))


@dataclass(frozen=True)
class _Room:
    """GPUs and CPUs in steps: those of a node, or those that one replica takes."""

    gpus: int
    cpus: int

    @classmethod
    def least(cls, gpus: float, cpus: float) -> _Room:
        return cls(_in_steps(gpus, ROUND_FLOOR), _in_steps(cpus, ROUND_FLOOR))

    @classmethod
    def most(cls, gpus: float, cpus: float) -> _Room:
        return cls(_in_steps(gpus, ROUND_CEILING), _in_steps(cpus, ROUND_CEILING))

    def pieces(self, size: _Room) -> int:
        """How often *size* fits in here.

        The replicas on a node never have more pieces together than the node has. So where all replicas
        have more pieces than all nodes, no placement exists, whatever the size of the pieces.
        """
        counts = []
        if size.gpus:
            counts.append(_gpu_pieces(self.gpus, size.gpus))
        if size.cpus:
            counts.append(self.cpus // size.cpus)
        return min(counts, default=1)

    def __str__(self) -> str:
        return _in_words(self.gpus / _STEPS, self.cpus / _STEPS)


@dataclass(frozen=True)
class _Wanted:
    demand: Demand
    size: _Room


def _in_steps(amount: float, rounding: str) -> int:
    # By way of its decimal digits: 0.29 * 10_000 is 2899.999….
    return int((Decimal(str(amount)) * _STEPS).to_integral_value(rounding))


def _gpu_pieces(gpus: int, size: int) -> int:
    """Pieces of *size* in *gpus*; a piece below one GPU lies on one GPU, a larger one takes whole GPUs."""
    whole, part = divmod(gpus, _STEPS)
    if size >= _STEPS:
        return whole * _STEPS // size
    return whole * (_STEPS // size) + part // size


def _total(rooms: Iterable[tuple[int, _Room]]) -> _Room:
    counted = list(rooms)
    return _Room(sum(n * room.gpus for n, room in counted), sum(n * room.cpus for n, room in counted))


def _over_budget(wanted: Sequence[_Wanted], rooms: Sequence[_Room]) -> Iterator[str]:
    need = _total((want.demand.replicas, want.size) for want in wanted)
    have = _total((1, room) for room in rooms)
    for unit, field, wants, has in (
        ("GPU", "num_gpus", need.gpus, have.gpus),
        ("CPU", "num_cpus", need.cpus, have.cpus),
    ):
        if wants > has:
            yield (
                f"{_amount(wants / _STEPS, unit)} wanted, {_amount(has / _STEPS, unit)} in the cluster, "
                f"{_amount((wants - has) / _STEPS, unit)} too few: "
                f"lower num_replicas or {field}, or add a node"
            )


def _too_large(wanted: Sequence[_Wanted], nodes: Sequence[Node]) -> Iterator[str]:
    for want in wanted:
        largest = max(nodes, key=lambda node: (node.gpus, node.cpus) if want.size.gpus else (node.cpus, 0.0))
        yield (
            f"{want.demand.reward}: one replica wants {want.size} on one node, and no node has that; "
            f"the largest is {largest.name} with {_in_words(largest.gpus, largest.cpus)}: "
            "lower what a replica wants, or add a larger node"
        )


def _fragmented(wanted: Sequence[_Wanted], rooms: Sequence[_Room]) -> Iterator[str]:
    """What the nodes could hold by sum, but not in pieces."""
    sizes = [want.size for want in wanted]
    single = [_Room(size.gpus, 0) for size in sizes] + [_Room(0, size.cpus) for size in sizes]
    told: set[tuple[tuple[str, ...], int]] = set()
    for piece in dict.fromkeys(piece for piece in single + sizes if piece.gpus or piece.cpus):
        counted = [want for want in wanted if want.size.pieces(piece)]
        names = tuple(want.demand.reward for want in counted)
        need = sum(want.demand.replicas * want.size.pieces(piece) for want in counted)
        held = [room.pieces(piece) for room in rooms]
        if need > sum(held) and _fit_by_sum(counted, rooms, piece) and (names, sum(held)) not in told:
            told.add((names, sum(held)))
            alone = " and a part of a GPU on one GPU" if 0 < piece.gpus < _STEPS else ""
            yield (
                f"{', '.join(names)}: {need} x ({piece}) wanted, but the nodes have room for "
                f"{sum(held)} ({' + '.join(map(str, held))}), because a replica lives on one node"
                f"{alone}: use fewer or smaller replicas, or add a node"
            )


def _fit_by_sum(wanted: Sequence[_Wanted], rooms: Sequence[_Room], piece: _Room) -> bool:
    """Whether no sum of a resource of *piece* is over the total, which has a finding of its own."""
    need = _total((want.demand.replicas, want.size) for want in wanted)
    have = _total((1, room) for room in rooms)
    return not (piece.gpus and need.gpus > have.gpus) and not (piece.cpus and need.cpus > have.cpus)


def _table(demands: Sequence[Demand], nodes: Sequence[Node]) -> list[str]:
    rows = [("", "replicas x GPUs", "replicas x CPUs")]
    rows += [(d.reward, _times(d.replicas, d.gpus), _times(d.replicas, d.cpus)) for d in demands]
    rows.append(_sum_row("wanted", [(d.replicas, d.gpus, d.cpus) for d in demands]))
    alike = Counter((node.gpus, node.cpus) for node in nodes)
    for (gpus, cpus), count in alike.items():
        names = [node.name for node in nodes if (node.gpus, node.cpus) == (gpus, cpus)]
        label = f"node {names[0]}" if count == 1 else f"{count} nodes like {names[0]}"
        rows.append((label, _times(count, gpus), _times(count, cpus)))
    rows.append(_sum_row("cluster", [(1, node.gpus, node.cpus) for node in nodes]))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [f"  {a:<{widths[0]}}  {b:>{widths[1]}}  {c:>{widths[2]}}" for a, b, c in rows]


def _sum_row(label: str, amounts: Sequence[tuple[int, float, float]]) -> tuple[str, str, str]:
    gpus = sum(count * gpus for count, gpus, _ in amounts)
    cpus = sum(count * cpus for count, _, cpus in amounts)
    return label, f"{gpus:g}", f"{cpus:g}"


def _times(count: int, amount: float) -> str:
    return f"{count} x {amount:g} = {count * amount:g}"


def _in_words(gpus: float, cpus: float) -> str:
    parts = [_amount(amount, unit) for amount, unit in ((gpus, "GPU"), (cpus, "CPU")) if amount]
    return " and ".join(parts) or "no GPU and no CPU"


def _amount(amount: float, unit: str) -> str:
    return f"{amount:g} {unit}{'' if amount == 1 else 's'}"
