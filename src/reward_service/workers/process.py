"""The scorer process: builds one scorer, connects to the gateways, answers batches until it is told to stop.

Its supervisor writes JSON lines to stdin (first the spec, later commands) and reads JSON lines (state) from
the file descriptor named as the only argument. What libraries print goes to stderr and corrupts neither.
This module runs in any environment: standard library and Pillow, Python 3.10.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import io
import json
import os
import selectors
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

from reward_service.scorers.registry import get_scorer_cls
from reward_service.workers.batch import BatchRunner, Entry, error_entry, unusable_device
from reward_service.workers.items import Media, build
from reward_service.workers.protocol import PROTOCOL_VERSION, Channel, Message, ProtocolError, connect

# Exit codes that the supervisor can tell apart from a crash.
EXIT_STOPPED = 0
EXIT_NOT_BUILT = 3
EXIT_UNUSABLE_DEVICE = 4
EXIT_LOST_THREAD = 5
RECONNECT_S = 30.0
PR_SET_PDEATHSIG = 1


class Gateway:
    """One connected gateway: its channel, its shared memory, and a lock for answers from several threads."""

    def __init__(self, address: list[Any], channel: Channel, media: Media) -> None:
        self.address = address
        self.channel = channel
        self.media = media
        self._lock = threading.Lock()

    def answer(self, batch_id: int, entries: list[Entry], limit: int) -> None:
        """Send a result; a gateway that is gone no longer wants it."""
        with contextlib.suppress(OSError), self._lock:
            self.channel.send({"t": "result", "id": batch_id, "items": entries, "limit": limit})


def join_gateway(address: list[Any], hello: Message) -> Gateway:
    """Connect and shake hands; raises OSError or ProtocolError."""
    channel = connect(address)
    try:
        channel.send({"t": "hello", "role": "scorer", "protocol": PROTOCOL_VERSION, "token": address[-1], **hello})
        welcome, fds = channel.receive_with_fds()
        if welcome.get("t") != "welcome":
            raise ProtocolError(f"the gateway refused: {welcome.get('reason', welcome)}")
        media = Media(fds[0] if fds else None, int(welcome.get("arena_bytes", 0)))
    except BaseException:
        channel.close()
        raise
    for fd in fds:
        os.close(fd)
    return Gateway(address, channel, media)


class ScorerProcess:
    """The main loop: one selector over gateways and the wake-up pipe."""

    def __init__(self, spec: Message, status: Callable[[Message], None]) -> None:
        self._spec = spec
        self._status = status
        self._hello = {key: spec[key] for key in ("reward", "replica", "incarnation")}
        self._selector = selectors.DefaultSelector()
        self._new: list[list[Any]] = [list(address) for address in spec["gateways"]]
        self._lost: list[tuple[float, list[Any]]] = []
        self._stopping = False
        self._wake_r, self._wake_w = os.pipe()
        os.set_blocking(self._wake_r, False)
        os.set_blocking(self._wake_w, False)
        self._selector.register(self._wake_r, selectors.EVENT_READ, None)
        threads = int(spec["max_concurrency"])
        # One batch at a time stays on the main thread: no hand-over, and libraries that insist on it work.
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="score") if threads > 1 else None

    def stop(self, *_: object) -> None:
        """Finish what runs and leave; safe in a signal handler and from other threads."""
        self._stopping = True
        self._wake()

    def add_gateway(self, address: list[Any]) -> None:
        """Also serve the gateway at *address*."""
        self._new.append(address)
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_w, b"x")

    def build(self) -> Any:
        """Import, construct and warm up the scorer, reporting each stage."""
        spec = self._spec
        self._status({"state": "importing"})
        cls = get_scorer_cls(spec["scorer"])
        self._status({"state": "loading"})
        check_params(cls, spec["scorer"], spec["params"])
        scorer = cls(**spec["params"])
        if spec["warmup"] and callable(getattr(scorer, "warmup", None)):
            self._status({"state": "warming up"})
            scorer.warmup()
        limit = int(spec["max_batch_size"] or getattr(scorer, "max_batch_size", 32))
        self.runner = BatchRunner(scorer, limit)
        self._hello["max_batch_size"] = limit
        self._hello["slots"] = int(spec["max_concurrency"])
        return scorer

    def serve(self) -> None:
        """Answer batches until `stop`, or until every gateway has been gone for `RECONNECT_S`."""
        while not self._stopping:
            self._connect_pending()
            if not self._lost and len(self._selector.get_map()) == 1 and not self._new:
                return
            for key, _ in self._selector.select(0.2 if self._lost or self._new else None):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_r, 4096)
                elif not self._stopping:
                    self._read(key.data)
        if self._pool is not None:
            self._pool.shutdown(wait=True)

    def _connect_pending(self) -> None:
        now = time.monotonic()
        pending = [(now + RECONNECT_S, address) for address in self._new] + self._lost
        self._new, self._lost = [], []
        for give_up, address in pending:
            try:
                gateway = join_gateway(address, self._hello)
            except (OSError, ProtocolError) as error:
                if now < give_up:
                    self._lost.append((give_up, address))
                else:
                    print(f"gave up on the gateway at {address}: {error}", file=sys.stderr, flush=True)
                continue
            self._selector.register(gateway.channel, selectors.EVENT_READ, gateway)

    def _read(self, gateway: Gateway) -> None:
        try:
            frames = gateway.channel.receive_available()
        except (OSError, ProtocolError) as error:
            print(f"connection to the gateway lost: {error}", file=sys.stderr, flush=True)
            frames = None
        if frames is None:
            self._selector.unregister(gateway.channel)
            gateway.channel.close()
            self._lost.append((time.monotonic() + RECONNECT_S, gateway.address))
            return
        for message, blob in frames:
            if message.get("t") != "batch":
                continue
            if self._pool is None:
                self._score(gateway, message, blob)
            else:
                self._pool.submit(self._score_or_leave, gateway, message, blob)

    def _score_or_leave(self, gateway: Gateway, message: Message, blob: bytes) -> None:
        """On a pool's thread: what would end the process on the main thread (SystemExit, say) ends it here too."""
        try:
            self._score(gateway, message, blob)
        except BaseException:
            traceback.print_exc()
            os._exit(EXIT_LOST_THREAD)

    def _score(self, gateway: Gateway, message: Message, blob: bytes) -> None:
        items = []
        entries: list[Entry | None] = []
        for raw in message["items"]:
            try:
                items.append(build(raw, blob, gateway.media))
                entries.append(None)
            except Exception as error:
                entries.append(error_entry(error))
        scored = iter(self.runner.run(items))
        done = [entry if entry is not None else next(scored) for entry in entries]
        gateway.answer(message["id"], done, self.runner.limit)
        for entry in done:
            if "e" in entry and unusable_device(*entry["e"]):
                print(f"the device is unusable, leaving: {entry['e'][1]}", file=sys.stderr, flush=True)
                os._exit(EXIT_UNUSABLE_DEVICE)


def check_params(cls: type, name: str, params: dict[str, Any]) -> None:
    """Refuse parameters that the constructor does not know, naming those that it does; raises TypeError."""
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return
    known = signature.parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values()):
        return
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise TypeError(
            f"scorer {name!r} has no parameter {', '.join(map(repr, unknown))}; it takes: {', '.join(known) or 'none'}"
        )


def die_with_parent() -> None:
    """Ask Linux to kill this process when the supervisor's thread ends, however it ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def listen_to_supervisor(process: ScorerProcess, commands: io.FileIO) -> None:
    """Obey *commands*; their end means that the supervisor is gone."""
    for line in commands:
        command = json.loads(line)
        if command["do"] == "connect":
            process.add_gateway(command["gateway"])
        elif command["do"] == "stop":
            process.stop()
    process.stop()


def main() -> int:
    """Run one scorer process to its end; the exit code tells the supervisor why it ended."""
    die_with_parent()
    with contextlib.suppress(OSError):
        os.dup2(2, 1)
    status_file = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def status(message: Message) -> None:
        status_file.write(json.dumps(message) + "\n")

    # Unbuffered: a thread that waits in a buffered read would block the interpreter's exit.
    commands = io.FileIO(0, closefd=False)
    spec = json.loads(commands.readline())
    sys.path += [entry for entry in spec["sys_path"] if entry not in sys.path]
    process = ScorerProcess(spec, status)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        scorer = process.build()
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            return EXIT_STOPPED
        cause = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        status({"state": "failed", "reason": f"{type(error).__name__}: {error}", "traceback": cause})
        return EXIT_NOT_BUILT

    def on_term(_signal: int, _frame: FrameType | None) -> None:
        process.stop()

    signal.signal(signal.SIGTERM, on_term)
    threading.Thread(target=listen_to_supervisor, args=(process, commands), daemon=True).start()
    status({"state": "ready", "max_batch_size": process.runner.limit})
    try:
        process.serve()
    finally:
        close = getattr(scorer, "close", None)
        if callable(close):
            close()
    return EXIT_STOPPED
