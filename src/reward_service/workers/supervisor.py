"""Keeps one scorer process alive: builds its environment, starts it, watches it, restarts it with growing pauses.

Runs on an asyncio loop of its own (in a Ray actor, or in a test) and reports every change of state to the
gateways it is linked to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from reward_service.errors import EnvironmentBuildError
from reward_service.workers.environments import ensure_environment
from reward_service.workers.process import EXIT_NOT_BUILT
from reward_service.workers.protocol import (
    PROTOCOL_VERSION,
    Address,
    FrameBuffer,
    Message,
    ProtocolError,
    pack,
)
from reward_service.workers.spec import ReplicaSpec

BOOTSTRAP = str(Path(__file__).with_name("bootstrap.py"))
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 60.0
# A process that lived this long starts with the shortest pause again.
STABLE_S = 60.0
STOP_GRACE_S = 10.0
STDERR_LINES = 40
STDERR_LINE_CHARS = 1_000
LINK_RETRY_S = 0.5
# How long the end of a process's pipes is waited for.
BURIAL_S = 1.0
FORGET_S = 120.0
# Pillow and glibc then reuse the memory of pictures instead of having the kernel clear it for each one.
DEFAULT_ENV = {
    "PILLOW_BLOCKS_MAX": "8",
    "MALLOC_MMAP_THRESHOLD_": "33554432",
    "MALLOC_TRIM_THRESHOLD_": "268435456",
}


class Supervisor:
    """One replica. `run` lasts until `stop`; `state` is the latest report."""

    def __init__(self, spec: ReplicaSpec) -> None:
        self.spec = spec
        self.state: Message = {"state": "pending"}
        self._gateways: list[Address] = [list(address) for address in spec.gateways]
        self._links: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._incarnation = 0
        self._was_ready = False
        self._kill_reason: str | None = None

    async def run(self) -> None:
        """Supervise until `stop` is called; returns when the scorer process is gone."""
        for address in self._gateways:
            self._keep(self._link(address))
        supervising = asyncio.create_task(self._supervise())
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({supervising, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._end_process()
            # `_supervise` buries the process and returns; only a build of an environment has to be cut short.
            await asyncio.wait({supervising}, timeout=0.0 if self._process is None else 2 * BURIAL_S)
            for task in (*self._tasks, supervising, stopping):
                task.cancel()
            ended = await asyncio.gather(supervising, stopping, *self._tasks, return_exceptions=True)
        if isinstance(ended[0], Exception):
            raise ended[0]

    def stop(self) -> None:
        """End the scorer process in an orderly way and return from `run`."""
        self._stop.set()

    def attach(self, address: Address) -> None:
        """Serve one more gateway."""
        if address in self._gateways:
            return
        self._gateways.append(address)
        self._keep(self._link(address))
        self._command({"do": "connect", "gateway": address})

    def kill(self, reason: str) -> None:
        """Kill the scorer process (it hangs, say); it is restarted like after a crash."""
        if self._process is not None and self._process.returncode is None:
            self._kill_reason = reason
            send_signal(self._process, signal.SIGKILL)

    # ------------------------------------------------------------------ life of the process

    async def _supervise(self) -> None:
        attempts, pause = 0, FIRST_PAUSE_S
        while not self._stop.is_set():
            started = time.monotonic()
            ready, reason, trace = await self._one_life()
            if self._stop.is_set():
                return
            self._was_ready |= ready
            attempts = 0 if ready else attempts + 1
            if not self._was_ready and attempts >= self.spec.max_start_attempts:
                self._report({"state": "failed", "reason": reason, "traceback": trace})
                await self._stop.wait()
                return
            if ready and time.monotonic() - started > STABLE_S:
                pause = FIRST_PAUSE_S
            self._report(
                {
                    "state": "restarting",
                    "reason": reason,
                    "traceback": trace,
                    "detail": f"again in {pause:.1f} s",
                }
            )
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _one_life(self) -> tuple[bool, str, str | None]:
        """Start the process and wait for its end: (was it ready, why it ended, traceback)."""
        try:
            python = await self._environment()
        except EnvironmentBuildError as error:
            return False, str(error), None
        status_r, status_w = os.pipe()
        self._kill_reason = None
        try:
            process = await asyncio.create_subprocess_exec(
                python, "-u", BOOTSTRAP, str(status_w),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
                pass_fds=[status_w], env={**DEFAULT_ENV, **os.environ, **self.spec.env}, limit=1 << 20,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(status_r)
            return False, f"cannot start {python}: {error.strerror}", None
        finally:
            os.close(status_w)
        self._process = process
        self._incarnation += 1
        self._report({"state": "starting", "pid": process.pid})
        self._write_stdin(self._spec_message())
        tail: deque[str] = deque(maxlen=STDERR_LINES)
        errors = asyncio.create_task(self._read_stderr(process, tail))
        watch = asyncio.create_task(self._read_status(status_r))
        ended = asyncio.create_task(until_exit(process))
        try:
            ready, failure = await self._await_ready(watch, ended)
            if failure is None:
                await ended
        finally:
            await self._bury(process, errors, watch, ended)
        if failure is not None and failure.get("traceback"):
            return ready, failure["reason"], failure["traceback"]
        reason = (failure or {}).get("reason") or self._kill_reason or describe_exit(process.returncode)
        return ready, reason, "\n".join(tail) or None

    async def _bury(self, process: asyncio.subprocess.Process, *tasks: asyncio.Task[Any]) -> None:
        """End *process* and what it started, and the *tasks* that watch it."""
        try:
            await self._end_process()
        finally:
            kill_group(process.pid)
        reaped = asyncio.create_task(process.wait())
        try:
            # A stray grandchild may hold the pipes open; what it has to say is not waited for.
            await asyncio.wait({*tasks, reaped}, timeout=BURIAL_S)
        finally:
            for task in (*tasks, reaped):
                task.cancel()
        await asyncio.gather(*tasks, reaped, return_exceptions=True)
        if process.returncode is not None:
            # Closes the pipes that a stray grandchild may hold; asyncio has no public name for it.
            process._transport.close()  # type: ignore[attr-defined]

    async def _environment(self) -> str:
        if self.spec.requirements is None:
            return sys.executable
        self._report({"state": "environment", "detail": Path(self.spec.requirements).name})
        loop = asyncio.get_running_loop()

        def progress(line: str) -> None:
            loop.call_soon_threadsafe(self._report, {"state": "environment", "detail": line})

        python = await asyncio.to_thread(ensure_environment, Path(self.spec.requirements), progress=progress)
        return str(python)

    async def _await_ready(
        self, watch: asyncio.Task[Message | None], ended: asyncio.Task[None]
    ) -> tuple[bool, Message | None]:
        """Wait until the process says ready, or says why not, or is gone: (ready, failure message or None)."""
        self._ready = asyncio.Event()
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait(
                {watch, ready, ended}, timeout=self.spec.start_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if ended.done():
                # Its last words may still be in the pipe; a grandchild may hold that open.
                await asyncio.wait({watch}, timeout=1.0)
        finally:
            ready.cancel()
        if self._ready.is_set():
            return True, None
        if watch.done() or ended.done():
            return False, watch.result() if watch.done() else None
        return False, {"reason": f"not ready after start_timeout_s = {self.spec.start_timeout_s:g} s"}

    async def _read_status(self, fd: int) -> Message | None:
        """Relay the process's state until it closes the pipe; the failure it reported, if any."""
        reader = asyncio.StreamReader(limit=1 << 22)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb", buffering=0)
        )
        failure: Message | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["state"] == "failed":
                    failure = message
                    continue
                self._report({**message, "pid": self._process.pid if self._process else None})
                if message["state"] == "ready":
                    self._ready.set()
        finally:
            transport.close()
        return failure

    async def _read_stderr(self, process: asyncio.subprocess.Process, tail: deque[str]) -> None:
        assert process.stderr is not None
        while True:
            try:
                raw = await process.stderr.readline()
            except ValueError:  # a line over the limit; readline dropped it
                continue
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip()[:STDERR_LINE_CHARS]
            tail.append(line)
            self._send({"t": "log", "line": line})

    async def _end_process(self) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._command({"do": "stop"})
        send_signal(process, signal.SIGTERM)
        try:
            await asyncio.wait_for(until_exit(process), STOP_GRACE_S if self._was_ready else 1.0)
        except TimeoutError:
            send_signal(process, signal.SIGKILL)
            await until_exit(process)

    def _spec_message(self) -> Message:
        spec = self.spec
        return {
            "reward": spec.reward, "replica": spec.replica, "incarnation": self._incarnation,
            "scorer": spec.scorer, "params": spec.params, "gateways": self._gateways, "warmup": spec.warmup,
            "max_concurrency": spec.max_concurrency, "max_batch_size": spec.max_batch_size,
            "sys_path": list(spec.sys_path),
        }  # fmt: skip

    def _command(self, command: Message) -> None:
        if self._process is not None and self._process.returncode is None:
            self._write_stdin(command)

    def _write_stdin(self, message: Message) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, RuntimeError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    # ------------------------------------------------------------------ links to gateways

    def _report(self, state: Message) -> None:
        self.state = {**state, "incarnation": self._incarnation}
        self._send({"t": "state", **self.state})

    def _send(self, message: Message) -> None:
        frame = pack(message)
        for writer in self._links:
            writer.write(frame)

    def _keep(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _link(self, address: Address) -> None:
        """Hold the control connection to one gateway, re-opened when it breaks; forget one that is gone for good."""
        last_seen = time.monotonic()
        while time.monotonic() - last_seen < FORGET_S:
            with contextlib.suppress(OSError, ProtocolError):
                await self._one_link(address)
                last_seen = time.monotonic()
            await asyncio.sleep(LINK_RETRY_S)
        self._gateways.remove(address)

    async def _one_link(self, address: Address) -> None:
        if address[0] == "unix":
            reader, writer = await asyncio.open_unix_connection(address[1])
        else:
            reader, writer = await asyncio.open_connection(address[1], int(address[2]))
        spec = self.spec
        hello = {
            "t": "hello", "role": "supervisor", "protocol": PROTOCOL_VERSION, "token": address[-1],
            "reward": spec.reward, "replica": spec.replica,
        }  # fmt: skip
        writer.write(pack(hello))
        writer.write(pack({"t": "state", **self.state}))
        self._links.append(writer)
        buffer = FrameBuffer()
        try:
            while data := await reader.read(1 << 16):
                buffer.feed(data)
                for message, _ in buffer.frames():
                    self._obey(message)
        finally:
            self._links.remove(writer)
            writer.close()

    def _obey(self, message: Message) -> None:
        if message.get("t") == "kill":
            self.kill(str(message.get("reason", "killed by the gateway")))
        elif message.get("t") == "stop":
            self.stop()


async def until_exit(process: asyncio.subprocess.Process) -> None:
    """Wait for the end of *process* alone: `process.wait` waits for its pipes too, which its children may hold."""
    if process.returncode is not None:
        return
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop.add_reader(fd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(fd)
        os.close(fd)


def send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal; asyncio's own method may reap the process, which is then reported with a wrong exit code."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def kill_group(leader: int) -> None:
    """Kill what a dead scorer process left running (engine workers, data loaders)."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def describe_exit(code: int | None) -> str:
    """Why a process ended, in words."""
    if code is None:
        return "the scorer process is gone"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"the scorer process was killed by {signal.Signals(-code).name}"
        return f"the scorer process was killed by signal {-code}"
    if code == EXIT_NOT_BUILT:
        return "the scorer could not be built"
    return f"the scorer process exited with code {code}"
