"""CPU and memory of a service: its gateway, its scorer processes, and Ray's own daemons."""

from __future__ import annotations

import contextlib
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

# Command lines of what Ray runs for itself; its workers are the replicas.
RAY_DAEMONS = (
    "raylet", "gcs_server", "ray/dashboard", "runtime_env/agent", "log_monitor", "monitor.py", "ray::IDLE",
)  # fmt: skip


@dataclass(frozen=True)
class Cpu:
    """CPU seconds so far. machine: everything that ran on this machine, this service included."""

    gateway: float = 0.0
    replicas: float = 0.0
    ray: float = 0.0
    machine: float = 0.0

    def since(self, before: Cpu) -> Cpu:
        """What was used after *before*."""
        return Cpu(
            self.gateway - before.gateway, self.replicas - before.replicas,
            self.ray - before.ray, self.machine - before.machine,
        )  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """Of the gateway process, in MiB; shared pages included.

    peak: highest resident size since `Meter.reset_peak`. pss: resident now, each shared page divided by the
    number of processes that map it.
    """

    peak: float
    resident: float
    pss: float


class Meter:
    """Reads one service by the pid of its gateway; everything else hangs below it in the process tree."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._gateway = psutil.Process(pid)

    def cpu(self) -> Cpu:
        """The sums up to now; processes that ended are not in them."""
        replicas = daemons = 0.0
        for process in self._gateway.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                used = _seconds(process)
                if is_ray_daemon(process):
                    daemons += used
                else:
                    replicas += used
        whole = psutil.cpu_times()
        idle = whole.idle + getattr(whole, "iowait", 0.0)
        return Cpu(_seconds(self._gateway), replicas, daemons, sum(whole[:8]) - idle)

    def memory(self) -> Memory:
        """The gateway's, now."""
        status = _fields(self._proc("status"))
        pss = _fields(self._proc("smaps_rollup")).get("Pss", 0.0)
        return Memory(peak=status["VmHWM"], resident=status["VmRSS"], pss=pss)

    def reset_peak(self) -> None:
        """Let the peak start from what is resident now."""
        self._proc("clear_refs").write_text("5")

    def _proc(self, name: str) -> Path:
        return Path("/proc") / str(self.pid) / name


def is_ray_daemon(process: psutil.Process) -> bool:
    """Whether Ray runs *process* for itself."""
    line = " ".join(process.cmdline())
    return any(word in line for word in RAY_DAEMONS)


def own_cpu() -> float:
    """CPU seconds of this process so far."""
    return _seconds(psutil.Process())


def machine() -> dict[str, Any]:
    """Where and when this was measured; nothing that identifies a host."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _fields(path: Path) -> dict[str, float]:
    """Lines such as ``VmRSS:  123 kB``, in MiB."""
    values = {}
    for line in path.read_text().splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if len(words) == 2 and words[1] == "kB":
            values[name] = round(int(words[0]) / 1024, 1)
    return values
