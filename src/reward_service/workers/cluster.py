"""Ray: connects to or starts a cluster, checks that the replicas fit, places them, and takes them down."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import secrets
import socket
from collections.abc import Sequence
from typing import Any

import ray

from reward_service.config import ServiceConfig
from reward_service.errors import ConfigError
from reward_service.workers.actor import Endpoint, ReplicaActor
from reward_service.workers.placement import Node, check_placement, demands_of
from reward_service.workers.spec import ReplicaSpec

log = logging.getLogger(__name__)
STOP_TIMEOUT_S = 15.0
# Nothing travels through Ray's object store; this is about the least it accepts.
OBJECT_STORE_BYTES = 96 * 1024 * 1024
NAMESPACE = "reward-service"
ATTACH_TIMEOUT_S = 30.0
REACH_TIMEOUT_S = 10.0


class RayCluster:
    """The replicas of one service as Ray actors. Methods block: call them from a thread."""

    def __init__(self, config: ServiceConfig) -> None:
        self._config = config
        # Each with its first call, which is answered once the actor has got its place.
        self._actors: list[tuple[Any, Any]] = []
        # Names the actors, so that other gateways can share them.
        self.service_id = secrets.token_hex(4)

    @property
    def is_local(self) -> bool:
        """Whether this process started the cluster, which then is this machine alone."""
        return self._config.cluster.ray_address is None

    def connect(self) -> None:
        """Start or join Ray; raises ConfigError."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray starts workers at nice 15, and scorer processes would inherit it.
        os.environ.setdefault("RAY_worker_niceness", "0")
        cluster = self._config.cluster
        options: dict[str, Any] = {
            "namespace": cluster.namespace or NAMESPACE, "log_to_driver": False, "configure_logging": False,
            "logging_level": logging.WARNING,
        }  # fmt: skip
        if cluster.ray_address is None:
            cpus = math.ceil(sum(demand.cpus * demand.replicas for demand in demands_of(self._config)))
            # CPUs are bookkeeping in a cluster of our own: never let them keep a replica from starting.
            options |= {
                "address": "local", "num_cpus": max(os.cpu_count() or 1, cpus), "include_dashboard": False,
                "object_store_memory": OBJECT_STORE_BYTES,
            }  # fmt: skip
        else:
            check_reachable(cluster.ray_address)
            options["address"] = cluster.ray_address
        try:
            ray.init(**options)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise ConfigError(
                f"cluster.ray_address {cluster.ray_address!r}: {error}. Is the cluster up, and does it run "
                f"Ray {ray.__version__}? Ray asks for a token by default: set RAY_AUTH_MODE and RAY_AUTH_TOKEN "
                "as on the head node."
            ) from error

    def check(self) -> None:
        """Refuse what the cluster cannot hold; raises PlacementError."""
        check_placement(demands_of(self._config), self.nodes())

    def nodes(self) -> list[Node]:
        """The live nodes with their total resources."""
        return [
            Node(
                name=node["NodeManagerHostname"],
                gpus=float(node["Resources"].get("GPU", 0.0)),
                cpus=float(node["Resources"].get("CPU", 0.0)),
            )
            for node in ray.nodes()  # type: ignore[no-untyped-call]
            if node["Alive"]
        ]

    def node_id(self) -> str:
        """Id of the node this process runs on; empty for a Ray client outside the cluster."""
        return str(ray.get_runtime_context().get_node_id())

    def node_address(self) -> str:
        """Address under which other nodes reach this one."""
        return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def launch(self, specs: Sequence[ReplicaSpec], endpoint: Endpoint) -> None:
        """Ask Ray for one actor per spec; placement goes on in the background."""
        remote = ray.remote(ReplicaActor)
        for spec in specs:
            options: dict[str, Any] = {
                "num_gpus": spec.num_gpus, "num_cpus": spec.num_cpus, "max_restarts": -1, "max_task_retries": 0,
                "max_concurrency": 2, "name": self._name(self.service_id, spec),
            }  # fmt: skip
            if spec.scheduling == "spread":
                options["scheduling_strategy"] = "SPREAD"
            actor: Any = remote.options(**options).remote(spec, [endpoint])
            self._actors.append((actor, actor.pid.remote()))

    def attach(self, service_id: str, specs: Sequence[ReplicaSpec], endpoint: Endpoint) -> None:
        """Have the replicas of another gateway's service serve *endpoint* too; raises ConfigError."""
        try:
            actors = [ray.get_actor(self._name(service_id, spec)) for spec in specs]
            ray.get([actor.attach.remote(endpoint) for actor in actors], timeout=ATTACH_TIMEOUT_S)
        except (ValueError, ray.exceptions.RayError, ray.exceptions.GetTimeoutError) as error:
            raise ConfigError(
                f"cannot attach to service {service_id!r}: {error}. It must run on the same cluster and namespace "
                "with the same rewards; its gateway prints its id when it starts."
            ) from error

    @staticmethod
    def _name(service_id: str, spec: ReplicaSpec) -> str:
        return f"{service_id}:{spec.reward}:{spec.replica}"

    def stop(self) -> None:
        """Stop every replica (in an orderly way first) and leave or end the cluster."""
        # A cluster that is gone must not keep us from leaving.
        with contextlib.suppress(Exception):
            placed = [actor for actor, first in self._actors if ray.wait([first], timeout=0)[0]]
            stops = [actor.stop.remote(STOP_TIMEOUT_S) for actor in placed]
            if stops:
                ray.wait(stops, num_returns=len(stops), timeout=STOP_TIMEOUT_S)
        for actor, _ in self._actors:
            with contextlib.suppress(Exception):
                ray.kill(actor, no_restart=True)
        self._actors.clear()
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Raise ConfigError when nobody listens at ``host:port``, which Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_TIMEOUT_S).close()
    except OSError as error:
        raise ConfigError(
            f"cluster.ray_address {address!r}: {error.strerror or error}. "
            "Is the cluster up, and is this the address that `ray start --head` printed?"
        ) from error
