"""Runs the service in the foreground: Ray, replicas, HTTP, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time
from collections.abc import Iterator

import uvicorn
import uvloop

from reward_service.config import ServiceConfig
from reward_service.errors import ConfigError
from reward_service.gateway.app import GatewayApp
from reward_service.gateway.health import FAILED, STARTING, brief, status_of
from reward_service.gateway.heap import keep_freed_memory
from reward_service.gateway.replica import Replica
from reward_service.gateway.service import Gateway, replica_specs
from reward_service.workers.actor import Endpoint
from reward_service.workers.cluster import RayCluster

log = logging.getLogger(__name__)
ATTACH_EVERY_S = 5.0


def serve(config: ServiceConfig, attach: str | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; raises ConfigError when the config cannot work here.

    With *attach*, the id of a service on the same cluster, this gateway shares that service's replicas
    instead of starting its own.
    """
    if attach is not None and config.cluster.ray_address is None:
        raise ConfigError("attaching needs cluster.ray_address, the cluster of the service to share (or `auto`)")
    keep_freed_memory()
    listener = bind(config)
    cluster = RayCluster(config)
    try:
        Progress.say("starting Ray" if cluster.is_local else f"joining Ray at {config.cluster.ray_address}")
        cluster.connect()
        if attach is None:
            cluster.check()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, cluster, listener, attach))
    except KeyboardInterrupt:
        return 130
    finally:
        listener.close()
        cluster.stop()


def bind(config: ServiceConfig) -> socket.socket:
    """Take the port before anything expensive starts; raises ConfigError when it is not to be had."""
    host, port = config.server.host, config.server.port
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}. Change server.port or server.host."
        ) from error
    return sock


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: the end of the service is ours to order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(config: ServiceConfig, cluster: RayCluster, listener: socket.socket, attach: str | None) -> int:
    gateway = Gateway(config, multi_node=not cluster.is_local)
    progress = Progress()
    gateway.listeners.append(progress.changed)
    stop = _stop_event()
    tcp_host = None if cluster.is_local else await asyncio.to_thread(cluster.node_address)
    await gateway.start(tcp_host)
    options = uvicorn.Config(
        GatewayApp(gateway), log_config=None, access_log=False, lifespan="off", timeout_keep_alive=75, backlog=4096,
        proxy_headers=False, date_header=False, server_header=False,
    )  # fmt: skip
    server = _Uvicorn(options)
    serving = asyncio.create_task(server.serve([listener]))
    ready = asyncio.create_task(_announce(gateway, config, listener))
    try:
        endpoint = _endpoint(cluster, gateway, tcp_host)
        if attach is None:
            await asyncio.to_thread(cluster.launch, replica_specs(config), endpoint)
            if not cluster.is_local:
                Progress.say(f"service id {cluster.service_id}: share its replicas with --attach {cluster.service_id}")
            watch = asyncio.create_task(_give_up_unplaced(gateway))
        else:
            await asyncio.to_thread(cluster.attach, attach, replica_specs(config), endpoint)
            watch = asyncio.create_task(_keep_attached(cluster, gateway, attach, endpoint))
        await asyncio.wait({serving, asyncio.create_task(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        watch.cancel()
        await _drain(gateway, stop)
    finally:
        ready.cancel()
        server.should_exit = True
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(serving, 5.0)
        gateway.listeners.clear()
        Progress.say("leaving" if attach else "stopping the replicas")
        await asyncio.to_thread(cluster.stop)
        await gateway.close()
    return 0


def _endpoint(cluster: RayCluster, gateway: Gateway, tcp_host: str | None) -> Endpoint:
    links = gateway.links
    tcp = None if tcp_host is None or links.tcp_port is None else (tcp_host, links.tcp_port)
    return Endpoint(cluster.node_id(), links.unix_path, tcp, links.token)


def _stop_event() -> asyncio.Event:
    """Set by the first SIGTERM or SIGINT; the second one ends the waiting for requests in flight."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


async def _drain(gateway: Gateway, stop: asyncio.Event) -> None:
    grace = gateway.config.server.grace_period_s
    gateway.draining = True
    if not gateway.requests:
        return
    Progress.say(f"draining: {gateway.requests} requests in flight, up to {grace:g} s (once more to cut it short)")
    stop.clear()
    again = asyncio.create_task(stop.wait())
    drained = asyncio.create_task(gateway.drained(grace))
    await asyncio.wait({again, drained}, return_when=asyncio.FIRST_COMPLETED)
    if gateway.requests:
        log.warning("%d requests were cut off", gateway.requests)
    again.cancel()
    drained.cancel()


async def _give_up_unplaced(gateway: Gateway) -> None:
    seconds = gateway.config.cluster.placement_timeout_s
    await asyncio.sleep(seconds)
    gateway.give_up_unplaced(
        f"the cluster gave it no place within cluster.placement_timeout_s = {seconds:g} s; "
        "see `ray status` for what is taken"
    )


async def _keep_attached(cluster: RayCluster, gateway: Gateway, service_id: str, endpoint: Endpoint) -> None:
    """A restarted actor knows the gateway that launched it, not those that attached: attach again."""
    specs = {(spec.reward, spec.replica): spec for spec in replica_specs(gateway.config)}
    while True:
        await asyncio.sleep(ATTACH_EVERY_S)
        gone = [
            specs[group.name, replica.index]
            for group in gateway.groups.values() for replica in group.replicas if not replica.has_supervisor
        ]  # fmt: skip
        if gone:
            try:
                await asyncio.to_thread(cluster.attach, service_id, gone, endpoint)
            except ConfigError as error:
                log.warning("%s", error)


async def _announce(gateway: Gateway, config: ServiceConfig, listener: socket.socket) -> None:
    while status_of(gateway) == STARTING:
        gateway.changed.clear()
        await gateway.changed.wait()
    # What start-up allocated stays for good: the collector need not walk it again and again.
    gc.collect()
    gc.freeze()
    host, port = listener.getsockname()[:2]
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104 - compared, not bound
    failed = [name for name, group in gateway.groups.items() if group.failure is not None]
    ready = [name for name in gateway.groups if name not in failed]
    if failed:
        Progress.say(f"failed: {', '.join(failed)}; GET /health has the reasons")
    word = "partly ready" if status_of(gateway) == FAILED else "ready"
    Progress.say(f"{word}: {', '.join(ready) or 'nothing'} at http://{shown}:{port} (docs at /docs)")


class Progress:
    """Lines on the terminal while replicas come up."""

    _began = time.monotonic()

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str | None]] = {}

    def changed(self, replica: Replica) -> None:
        """Print what is new about *replica*."""
        now = (replica.state, replica.detail)
        if self._last.get(replica.label) == now:
            return
        self._last[replica.label] = now
        text = f"{replica.label:<24} {replica.state:<12} {replica.detail or ''}"
        if replica.state in ("failed", "restarting"):
            text += f"  {brief(replica.reason or '')}"
        self.say(text.rstrip())

    @classmethod
    def say(cls, text: str) -> None:
        """One line with the seconds since the start."""
        print(f"[{time.monotonic() - cls._began:7.1f} s] {text}", file=sys.stderr, flush=True)  # noqa: T201
