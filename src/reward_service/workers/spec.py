"""What a replica is told: one frozen record that travels from the gateway to its supervisor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reward_service.workers.protocol import Address


@dataclass(frozen=True)
class ReplicaSpec:
    """One replica of one reward. Everything in it is JSON, so that it can reach a scorer process."""

    reward: str
    replica: int
    scorer: str
    params: dict[str, Any]
    gateways: tuple[Address, ...] = ()
    requirements: str | None = None
    max_concurrency: int = 1
    max_batch_size: int | None = None
    warmup: bool = True
    start_timeout_s: float = 1800.0
    max_start_attempts: int = 3
    num_gpus: float = 0.0
    num_cpus: float = 1.0
    scheduling: str = "pack"
    # Folders that `package.module:Class` may be imported from.
    sys_path: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """``reward`` or ``reward#2`` in logs."""
        return self.reward if self.replica == 0 else f"{self.reward}#{self.replica}"
