"""``reward-service serve``: the service in the foreground."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
from types import FrameType
from typing import Any

from reward_service.cli.arguments import port, read_config
from reward_service.cli.extras import SERVER, require
from reward_service.errors import ConfigError

_PR_SET_PDEATHSIG = 1
_TERMINATED = 128 + signal.SIGTERM


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `entry.Command`."""
    parser.add_argument("--config", required=True, metavar="FILE", help="the YAML file, see docs/configuration.md")
    parser.add_argument("--host", help="instead of server.host")
    parser.add_argument("--port", type=port, help="instead of server.port; 0 takes a free one")
    parser.add_argument(
        "--attach",
        metavar="SERVICE_ID",
        help="share the replicas of a running service of the same config on cluster.ray_address; "
        "it prints its id when it starts",
    )
    parser.add_argument(
        "--with-parent",
        action="store_true",
        help="stop when the process that started this one is gone (Linux)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C."""
    require("server", SERVER, "serve")
    if args.with_parent:
        _end_with_parent()
    # Until the service has its own handlers, while Ray starts: unwind, so that Ray is stopped.
    signal.signal(signal.SIGTERM, _unwind)
    config = read_config(args.config)
    given: dict[str, Any] = {name: value for name in ("host", "port") if (value := getattr(args, name)) is not None}
    if not given.get("host", "-").strip():
        raise ConfigError("--host is blank; give an address such as 127.0.0.1")
    config = config.model_copy(update={"server": config.server.model_copy(update=given)})
    from reward_service.gateway.server import serve

    return serve(config, args.attach)


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(_TERMINATED)


def _end_with_parent() -> None:
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) != 0:
        raise ConfigError(f"--with-parent: {os.strerror(ctypes.get_errno())}; leave the option out")
    # The parent may have ended before the kernel knew of our wish.
    if os.getppid() != parent or parent == 1:
        raise ConfigError("--with-parent: the process that started this one is gone already")
