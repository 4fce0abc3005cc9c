"""The Ray actor that holds a replica's GPUs and place in the cluster, and runs its supervisor."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import threading
from collections.abc import Sequence

import ray

from reward_service.workers.protocol import Address
from reward_service.workers.spec import ReplicaSpec
from reward_service.workers.supervisor import Supervisor


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """How to reach one gateway: its unix socket from its own node, its TCP port from elsewhere."""

    node_id: str
    unix: str
    tcp: tuple[str, int] | None
    token: str

    def address_from(self, node_id: str) -> Address:
        """The address to use on the node *node_id*."""
        if node_id == self.node_id or self.tcp is None:
            return ["unix", self.unix, self.token]
        return ["tcp", *self.tcp, self.token]


class ReplicaActor:
    """Supervises one scorer process on a thread that lives as long as the actor.

    The thread must not end early: the process asks Linux to be killed when the thread that started it ends.
    """

    def __init__(self, spec: ReplicaSpec, endpoints: Sequence[Endpoint]) -> None:
        self._node_id = ray.get_runtime_context().get_node_id()
        env = {**spec.env, "CUDA_VISIBLE_DEVICES": ",".join(str(gpu) for gpu in ray.get_gpu_ids())}
        gateways = tuple(endpoint.address_from(self._node_id) for endpoint in endpoints)
        self._loop = asyncio.new_event_loop()
        self._supervisor = Supervisor(dataclasses.replace(spec, env=env, gateways=gateways))
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="supervisor", daemon=True).start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._supervisor.run())
        finally:
            self._ended.set()

    def attach(self, endpoint: Endpoint) -> None:
        """Serve the gateway at *endpoint* too."""
        # After a restart of the actor Ray calls the constructor again, not this.
        self._loop.call_soon_threadsafe(self._supervisor.attach, endpoint.address_from(self._node_id))

    def stop(self, timeout_s: float) -> bool:
        """Stop the scorer process in an orderly way; whether it is gone after *timeout_s*."""
        self._loop.call_soon_threadsafe(self._supervisor.stop)
        return self._ended.wait(timeout_s)

    def pid(self) -> int:
        """Process id of the actor."""
        return os.getpid()
