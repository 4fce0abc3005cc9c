"""A real service per test or module: ``python -m reward_service`` with Ray, in a process of its own."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from PIL import Image

PATIENCE_S = 90.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder is an integration test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.integration)


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """The first true value of *condition*; fails when it never comes."""
    pause = threading.Event()
    for _ in range(int(patience_s / 0.02)):
        if value := condition():
            return value
        pause.wait(0.02)
    pytest.fail(f"never happened: {what}")


def reward(name: str = "s", scorer: str = "Scripted", **fields: Any) -> dict[str, Any]:
    return {
        "name": name, "scorer": f"reward_service.testing.scorers:{scorer}", "num_gpus": 0, "num_cpus": 0.1, **fields,
    }  # fmt: skip


def picture(colour: str = "red", size: tuple[int, int] = (16, 16)) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


RED = picture()


def item(text: str = "a prompt", *rewards: str, image: str = RED, **fields: Any) -> dict[str, Any]:
    history = [{"text": text, "image_b64": image}]
    return {"history": history, "required_rewards": list(rewards or ("s",)), **fields}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def is_ray_agent(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[:1] in (["ray::RuntimeEnvAgent"], ["ray::DashboardAgent"])
    return False


def marked(process: psutil.Process, mark: str) -> bool:
    """Whether *process* descends from the service that was started with *mark*."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("REWARD_SERVICE_TEST") == mark
    return False


class Service:
    """One service process and all that it starts."""

    def __init__(self, config: dict[str, Any], folder: Path, *options: str, env: dict[str, str] | None = None) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"service-{self.port}.log"
        path = folder / f"service-{self.port}.json"
        path.write_text(json.dumps({"server": {"host": "127.0.0.1"}, **config}))
        command = [sys.executable, "-m", "reward_service", "serve", "--config", str(path), "--port", str(self.port)]
        # Inherited by all that the service starts, so that what lost its parent is found too.
        self.mark = uuid.uuid4().hex
        env = {**os.environ, **(env or {}), "REWARD_SERVICE_TEST": self.mark}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*command, *options], stdout=log, stderr=log, env=env, start_new_session=True
            )
        self.everything: set[psutil.Process] = set()

    def remember(self) -> None:
        """Note every process that belongs to the service now, so that `leftovers` can look for it."""
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self.process.pid)
            self.everything |= {root, *root.children(recursive=True)}
        self.everything |= {one for one in psutil.process_iter() if marked(one, self.mark)}

    def leftovers(self, *, ray_agents: bool = True) -> list[psutil.Process]:
        """What still runs; without *ray_agents* not counting two helpers of Ray that notice a killed driver late."""
        return [one for one in self.everything if alive(one) and (ray_agents or not is_ray_agent(one))]

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            return 0, {}

    def wait_ready(self) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, self.output()
            self.remember()
            return self.get("/readyz")[0] == 200

        wait_until(ready, f"ready\n{self.output()}")
        self.remember()

    def replicas(self, name: str) -> list[dict[str, Any]]:
        return self.get("/health")[1]["details"][name]["replicas"]

    def output(self) -> str:
        return self.log.read_text(errors="replace")[-6000:]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End the service; its exit code. Nothing that it started may be left.

        After SIGKILL two agents of Ray's own take a minute to notice; `kill` ends them.
        """
        self.remember()
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self.remember()
        agents = number != signal.SIGKILL
        wait_until(lambda: not self.leftovers(ray_agents=agents), f"an end of {self.leftovers()}\n{self.output()}")
        return code

    def kill(self) -> None:
        """Whatever happened, leave nothing behind."""
        self.remember()
        for one in self.leftovers():
            with contextlib.suppress(psutil.Error):
                one.kill()
        self.process.wait(PATIENCE_S)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """``start(reward(), …, server={…})``: a service, not waited for; ended with the test."""
    services: list[Service] = []

    def run(*rewards: dict[str, Any], options: tuple[str, ...] = (), env: Any = None, **sections: Any) -> Service:
        service = Service({**sections, "rewards": list(rewards)}, tmp_path, *options, env=env)
        services.append(service)
        return service

    yield run
    for service in services:
        service.kill()
