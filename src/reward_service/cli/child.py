"""A service of our own for the duration: started, waited for, and stopped whatever happens."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reward_service.cli.probe import get_json
from reward_service.errors import RewardServiceError

_HOST = "127.0.0.1"
_POLL_S = 0.2
_PROBE_TIMEOUT_S = 5.0
# Above the default server.grace_period_s plus the time that Ray takes to end.
_STOP_PATIENCE_S = 60.0


class ServiceFailed(RewardServiceError):
    """The service that was started for this command did not get ready, or ended."""


class ChildService:
    """``python -m reward_service`` on this machine; a context manager that leaves no process behind.

    Its progress goes to our stderr. It is in a session of its own, so that Ctrl-C reaches it through
    `stop` only, and it ends with this process even if that is killed.
    """

    def __init__(self, config: Path, port: int = 0, log_level: str = "warning") -> None:
        self.port = port or free_port()
        self.url = f"http://{_HOST}:{self.port}"
        self._command = [sys.executable, "-m", "reward_service", "serve", "--config", str(config)]
        self._command += [
            "--host",
            _HOST,
            "--port",
            str(self.port),
            "--with-parent",
            "--log-level",
            log_level,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=sys.__stderr__, start_new_session=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self) -> None:
        """Return once every reward is ready; raises ServiceFailed as soon as that cannot happen any more."""
        while (code := self._running().poll()) is None:
            status, answer = self._ask("/readyz")
            if status == 200:
                return
            if answer.get("status") == "failed":
                raise ServiceFailed(f"the service cannot get ready:\n{self._failures()}")
            time.sleep(_POLL_S)
        raise ServiceFailed(f"the service ended with exit code {code} before it was ready; its reason is above")

    def wait(self) -> int:
        """Wait until the service ends by itself; its exit code."""
        return self._running().wait()

    def stop(self) -> int:
        """End the service and everything it started; its exit code."""
        process = self._running()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(_STOP_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            except BaseException:
                # A second Ctrl-C: no more patience.
                process.kill()
                raise
            finally:
                process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # What outlived its parent, after a kill.
            os.killpg(process.pid, signal.SIGKILL)
        return process.returncode

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("use ChildService in a with statement")
        return self._process

    def _ask(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            return get_json(self.url + path, _PROBE_TIMEOUT_S)
        except OSError:
            return 0, {}

    def _failures(self) -> str:
        _, health = self._ask("/health")
        lines = []
        for name, details in (health.get("details") or {}).items():
            reasons = [replica.get("reason") for replica in details.get("replicas", ())]
            lines += [f"  {name}: {reason}" for reason in dict.fromkeys(filter(None, reasons))]
        return "\n".join(lines) or "  see its messages above"


def free_port() -> int:
    """A TCP port of this machine that is free now."""
    with socket.create_server((_HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
