"""A configuration as a plain table for people: ``reward-service check``."""

from __future__ import annotations

from collections.abc import Sequence

from reward_service.config.models import RewardConfig, ServiceConfig

_HEAD = ("reward", "scorer", "environment", "replicas", "GPUs", "CPUs")
# Numbers stand at the right of their column.
_FIRST_NUMBER = 3


def describe(config: ServiceConfig) -> str:
    """One line per reward and the totals to compare with a cluster; no params, which may hold secrets."""
    rewards = config.rewards
    total = (
        "total",
        "",
        "",
        str(sum(reward.num_replicas for reward in rewards)),
        f"{sum(reward.num_replicas * reward.num_gpus for reward in rewards):g}",
        f"{sum(reward.num_replicas * reward.num_cpus for reward in rewards):g}",
    )
    rows = [_HEAD, *(_row(reward) for reward in rewards), total]
    server, address = config.server, config.cluster.ray_address
    lines = [
        *_table(rows),
        "",
        f"listens on {server.host}:{server.port}, Ray {address or 'started locally'}",
    ]
    if config.mps.mode == "disabled":
        resting = [reward.name for reward in rewards if reward.mps is not None]
        if resting:
            lines.append(f"mps.mode is disabled, so the mps blocks of {', '.join(resting)} have no effect")
    return "\n".join(lines)


def _row(reward: RewardConfig) -> tuple[str, ...]:
    return (
        reward.name,
        reward.scorer,
        "base" if reward.runtime_env is None else reward.runtime_env.name,
        str(reward.num_replicas),
        _times(reward.num_replicas, reward.num_gpus),
        _times(reward.num_replicas, reward.num_cpus),
    )


def _times(replicas: int, amount: float) -> str:
    return f"{amount:g}" if replicas == 1 else f"{replicas} x {amount:g} = {replicas * amount:g}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < _FIRST_NUMBER else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
