"""A service to measure: one that is started here and stopped again, or one that already runs."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import yaml
from meter import Meter

CONFIG = Path(__file__).with_name("config.yaml")
OURS = "{python} -m reward_service --config {config}"
READY_S = 180.0
STOP_S = 40.0
POLL_S = 0.1
LOG_LINES = 25


class NoService(Exception):
    """There is no service to measure; says why and what to do."""


@dataclass(frozen=True)
class Service:
    """meter is None when the processes are not on this machine."""

    url: str
    meter: Meter | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that say which service is measured."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--server", default=OURS, metavar="CMD", help=f"what to start (default: {OURS})")
    where.add_argument("--url", help="measure a service that runs already")
    parser.add_argument("--pid", type=int, help="with --url: its gateway, if it is not the listener")
    parser.add_argument("--config", type=Path, default=CONFIG, help="what to start it with")
    parser.add_argument("--port", type=int, help="default: a free one")


@contextlib.contextmanager
def chosen(args: argparse.Namespace, folder: Path) -> Iterator[Service]:
    """The service of `add_arguments`; raises NoService."""
    if args.url is not None:
        yield running(args.url, args.pid)
        return
    with started(args.server, args.config, port_or_free(args.port), folder) as service:
        yield service


def port_or_free(port: int | None) -> int:
    """*port*, or a free one for None; raises NoService when *port* is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port or 0))
        except OSError as error:
            holder = _listener(port or 0)
            by = f" by process {holder}" if holder else ""
            raise NoService(f"port {port} is in use{by}; give another --port, or none for a free one") from error
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(command: str, config: Path, port: int, folder: Path) -> Iterator[Service]:
    """Run *command* with {python}, {config} and {port} filled in, until the block ends.

    {config} is a copy of *config* with the port in it. Raises NoService when nothing becomes ready there.
    """
    copy = folder / config.name
    document = yaml.safe_load(config.read_text(encoding="utf-8"))
    document.setdefault("server", {})["port"] = port
    copy.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    words = [word.format(python=sys.executable, config=copy, port=port) for word in shlex.split(command)]
    log = folder / "service.log"
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    with log.open("wb") as sink:
        process = subprocess.Popen(words, stdout=sink, stderr=sink, env=environment, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        await_ready(url, process, log)
        yield Service(url, Meter(process.pid))
    except (psutil.NoSuchProcess, ProcessLookupError) as error:
        ended = f"the service ended with code {process.poll()} under load"
        raise NoService(f"{ended}; its last lines:\n{_end_of(log)}") from error
    finally:
        stop(process)


def running(url: str, pid: int | None) -> Service:
    """The service at *url*; its CPU is known when *pid*, or a listener on this machine, is."""
    parts = urlsplit(url)
    if parts.port is None or parts.hostname is None:
        raise NoService(f"--url {url!r} has no host and port; give one such as http://127.0.0.1:8080")
    if pid is None and parts.hostname in ("127.0.0.1", "localhost"):
        pid = _listener(parts.port)
    if _status(url) is None:
        raise NoService(f"nothing answers at {url}; start the service first, or leave --url out")
    return Service(url.rstrip("/"), None if pid is None else Meter(pid))


def await_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for 200 from ``GET /health``, or 404 from a server without it; NoService carries the log's end."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise NoService(f"the service ended with code {process.returncode}:\n{_end_of(log)}")
        if _status(url) in (200, 404):
            return
        time.sleep(POLL_S)
    raise NoService(f"the service was not ready within {READY_S:g} s:\n{_end_of(log)}")


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL; children that survive their parent are killed and named."""
    children: list[psutil.Process] = []
    with contextlib.suppress(psutil.NoSuchProcess):
        children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        print(f"the service did not stop within {STOP_S:g} s of SIGTERM and is killed", file=sys.stderr)
        process.kill()
        process.wait()
    _, left = psutil.wait_procs(children, timeout=5.0)
    for child in left:
        with contextlib.suppress(psutil.Error):
            print(f"left behind by the service: {child.name()} (pid {child.pid}); killed", file=sys.stderr)
            child.kill()


def _status(url: str) -> int | None:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5.0) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def _listener(port: int) -> int | None:
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    return None


def _end_of(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
