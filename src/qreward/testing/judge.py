"""FakeJudge: an OpenAI-compatible server on the loopback that fails on demand and counts what arrives.

async with FakeJudge(latency_s=0.04) as judge: ...      in the running loop
with FakeJudge(rate=200).in_thread() as judge: ...      in a thread of its own, for synchronous code
python -m qreward.testing.judge --latency-s 0.04        in a process of its own; prints its URL as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Self

from aiohttp import web

from qreward.testing.counters import Counters
from qreward.testing.faults import Faults, Step, step
from qreward.testing.service import Answer, Service


class FakeJudge:
    """`faults` may be changed at any time; `counters` tells what came. *answer(body)* makes the text of a chat answer;
    by default it is ``echo:`` and the last text. The prompts ``__echo_body__`` and ``__echo_headers__`` answer the
    request itself. *keep_bodies* keeps every request for inspection. A judge that was stopped may be started again, at
    the same port.
    """

    def __init__(
        self, *, answer: Answer | None = None, seed: int = 1, port: int = 0, keep_bodies: bool = True, **faults: Any
    ) -> None:
        model = Faults()
        model.set(**faults)
        self._service = Service(model, answer, seed, keep_bodies)
        self._port = port
        self._runner: web.ServerRunner | None = None

    @property
    def faults(self) -> Faults:
        """The fault model; what is set holds from the next request."""
        return self._service.faults

    @property
    def counters(self) -> Counters:
        """What came since the start or the last reset."""
        return self._service.counters

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self) -> Self:
        """Listen on the loopback; a port of 0 was replaced by a free one afterwards."""
        if self._runner is not None:
            raise RuntimeError(f"the judge at {self.url} runs already; stop it first or make another one")
        server = web.Server(self._service, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", self._port, backlog=4096).start()
        except OSError:
            await runner.cleanup()
            raise
        self._runner, self._service.closing = runner, False
        self._port = runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Close the listening socket and every connection, whatever is going on; clients are cut off, not gone."""
        runner, self._runner, self._service.closing = self._runner, None, True
        if runner is not None:
            if runner.server is not None:
                for connection in list(runner.server.connections):
                    connection.force_close()
                    if connection.transport is not None:
                        connection.transport.abort()
            await runner.cleanup()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[Self]:
        """Serve from a daemon thread with its own event loop."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="fake-judge", daemon=True)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self.start(), loop).result(10)
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self.stop(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

    def script(self, *steps: Step | int) -> None:
        """What the next requests get, in order: ``"ok"``, a status, Reply, Delay, ``"reset"``, ``"hang"``,
        ``"malformed"``, ``"truncated"``. Of the faults only latency, stalls and capacity apply to them.
        """
        self._service.script.extend([step(s) for s in steps])

    def reset(self) -> None:
        """Forget the counts, the limits' past and the script; the faults stay."""
        self._service.reset()


if __name__ == "__main__":
    from qreward.testing.standalone import main

    main()
