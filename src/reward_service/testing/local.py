"""The real gateway with real scorer processes, without Ray: supervisors run on the caller's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import uvicorn

from reward_service.config import ServiceConfig, load_config_text
from reward_service.gateway.app import GatewayApp
from reward_service.gateway.health import STARTING, status_of
from reward_service.gateway.service import Gateway, replica_specs
from reward_service.workers.supervisor import Supervisor


class LocalService:
    """A running service: its `url`, its `gateway`, its `supervisors`."""

    def __init__(self, config: ServiceConfig, *, over_tcp: bool = False) -> None:
        self.config = config
        self.url = ""
        self.gateway = Gateway(config, multi_node=over_tcp)
        self.supervisors: list[Supervisor] = []

    async def until_settled(self) -> None:
        """Wait until every reward is ready or failed."""
        while status_of(self.gateway) == STARTING:
            self.gateway.changed.clear()
            await self.gateway.changed.wait()


@contextlib.asynccontextmanager
async def local_service(
    config: ServiceConfig | str, *, settled: bool = True, over_tcp: bool = False
) -> AsyncIterator[LocalService]:
    """Start a service on a free port of 127.0.0.1; *config* may be YAML text.

    With *over_tcp* its scorers connect as those on other nodes do, and share no memory with the gateway.
    """
    if isinstance(config, str):
        config = load_config_text(config)
    service = LocalService(config, over_tcp=over_tcp)
    await service.gateway.start("127.0.0.1" if over_tcp else None)
    links = service.gateway.links
    address = ["tcp", "127.0.0.1", links.tcp_port] if over_tcp else ["unix", links.unix_path]
    specs = replica_specs(config, ([*address, links.token],))
    service.supervisors = [Supervisor(spec) for spec in specs]
    running = [asyncio.create_task(supervisor.run()) for supervisor in service.supervisors]
    # With the protocol named, asyncio turns Nagle's algorithm off.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    service.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = uvicorn.Server(
        uvicorn.Config(GatewayApp(service.gateway), log_config=None, access_log=False, lifespan="off")
    )
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]
    serving = asyncio.create_task(server.serve([listener]))
    try:
        if settled:
            await service.until_settled()
        yield service
    finally:
        for supervisor in service.supervisors:
            supervisor.stop()
        await asyncio.gather(*running)
        server.should_exit = True
        await serving
        await service.gateway.close()
        listener.close()
