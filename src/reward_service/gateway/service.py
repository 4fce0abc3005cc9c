"""The running gateway: everything one process needs to answer requests, built from a config."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

from reward_service.config import RewardConfig, ServiceConfig
from reward_service.gateway import heap
from reward_service.gateway.admission import ByteBudget
from reward_service.gateway.arena import Arena
from reward_service.gateway.group import RewardGroup
from reward_service.gateway.idempotency import IdempotencyCache
from reward_service.gateway.intake import Intake, MediaRules
from reward_service.gateway.links import LinkServer
from reward_service.gateway.metrics import Metrics
from reward_service.gateway.parse import BodyRules
from reward_service.gateway.replica import Replica
from reward_service.workers.protocol import Address
from reward_service.workers.spec import ReplicaSpec

TRIM_EVERY_S = 2.0


class Gateway:
    """State of one gateway process. Create it and use it on one event loop."""

    def __init__(self, config: ServiceConfig, *, multi_node: bool = False) -> None:
        limits, server = config.limits, config.server
        self.config = config
        self.multi_node = multi_node
        self.changed = asyncio.Event()
        # Told of every change of a replica.
        self.listeners: list[Callable[[Replica], None]] = []
        self.groups = {reward.name: RewardGroup(reward, config, self._on_change) for reward in config.rewards}
        self.arena = Arena(limits.decoded_bytes_in_flight)
        threads = server.decode_threads or min(8, os.cpu_count() or 1)
        media = MediaRules(limits.max_image_pixels, limits.max_video_bytes, server.video_roots, multi_node)
        self.intake = Intake(self.arena, threads, media)
        self.bodies = ByteBudget(limits.body_bytes_in_flight)
        self.metrics = Metrics(self.groups, self.arena, self.bodies)
        self.idempotency = IdempotencyCache(limits.idempotency_cache_size)
        self.rules = BodyRules(limits, frozenset(self.groups))
        self.links = LinkServer(self.groups, self.arena)
        self.draining = False
        self.started = time.monotonic()
        # Requests between their first byte and their last.
        self.requests = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._housekeeping: asyncio.Task[None] | None = None

    async def start(self, tcp_host: str | None = None) -> None:
        """Listen for scorer processes; on *tcp_host* too when they may live on other nodes."""
        await self.links.start(tcp_host)
        self._housekeeping = asyncio.create_task(self._keep_house())

    async def close(self) -> None:
        """Release everything; replicas are stopped by whoever launched them."""
        if self._housekeeping is not None:
            self._housekeeping.cancel()
        self.links.close()
        await asyncio.to_thread(self.intake.threads.close)
        self.arena.close()

    def entered(self) -> None:
        """A request begins."""
        self.requests += 1
        self._quiet.clear()

    def left(self) -> None:
        """A request ended."""
        self.requests -= 1
        if not self.requests:
            self._quiet.set()

    async def drained(self, timeout_s: float) -> bool:
        """Wait until no request is in flight; whether that happened in time."""
        try:
            await asyncio.wait_for(self._quiet.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def give_up_unplaced(self, reason: str) -> None:
        """Fail the replicas whose supervisor never appeared."""
        for group in self.groups.values():
            for replica in group.replicas:
                if not replica.reported:
                    group.set_state(replica.index, {"state": "failed", "reason": reason})

    def _on_change(self, replica: Replica) -> None:
        self.changed.set()
        for listener in self.listeners:
            listener(replica)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(TRIM_EVERY_S)
            if not self.requests and self.arena.trim():
                heap.trim()


def replica_specs(config: ServiceConfig, gateways: tuple[Address, ...] = ()) -> list[ReplicaSpec]:
    """One spec per replica, in the order of the config."""
    return [_spec(config, reward, index, gateways) for reward in config.rewards for index in range(reward.num_replicas)]


def _spec(config: ServiceConfig, reward: RewardConfig, index: int, gateways: tuple[Address, ...]) -> ReplicaSpec:
    folders = [str(config.source.parent)] if config.source is not None else []
    return ReplicaSpec(
        reward=reward.name, replica=index, scorer=reward.scorer, params=dict(reward.params), gateways=gateways,
        requirements=None if reward.runtime_env is None else str(reward.runtime_env),
        max_concurrency=reward.max_concurrency, max_batch_size=reward.max_batch_size, warmup=reward.warmup,
        start_timeout_s=reward.start_timeout_s, max_start_attempts=reward.max_start_attempts,
        num_gpus=reward.num_gpus, num_cpus=reward.num_cpus, scheduling=reward.scheduling,
        sys_path=(*folders, os.getcwd()), env=mps_env(config, reward),
    )  # fmt: skip


def mps_env(config: ServiceConfig, reward: RewardConfig) -> dict[str, str]:
    """Environment of a scorer that shares its GPU through a CUDA MPS daemon; empty without an `mps` block."""
    if reward.mps is None or config.mps.mode == "disabled":
        return {}
    env = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(reward.mps.active_thread_percentage)}
    if config.mps.pipe_directory is not None:
        env["CUDA_MPS_PIPE_DIRECTORY"] = str(config.mps.pipe_directory)
    if config.mps.log_directory is not None:
        env["CUDA_MPS_LOG_DIRECTORY"] = str(config.mps.log_directory)
    if reward.mps.device_memory_limit_bytes is not None:
        env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = f"0={reward.mps.device_memory_limit_bytes >> 20}M"
    return env
