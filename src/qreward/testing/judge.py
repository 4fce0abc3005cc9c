"""FakeJudge: an OpenAI-compatible server on the loopback that fails on demand and counts what arrives.

async with FakeJudge(latency_s=0.04) as judge: ...      in the running loop
with FakeJudge(rate=200).in_thread() as judge: ...      in a thread of its own, for synchronous code
python -m qreward.testing.judge --latency-s 0.04        in a process of its own; prints its URL as JSON
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any, Self

import orjson
from aiohttp import web

from qreward.testing import answers
from qreward.testing.counters import Arrival, Counters
from qreward.testing.faults import Bucket, Delay, Faults, Reply, Step, step

Answer = Callable[[dict[str, Any]], str]
_KEPT_HEADERS = ("user-agent", "content-type", "accept")


class FakeJudge:
    """`faults` may be changed at any time; `counters` tells what came. *answer(body)* makes the text of a chat answer;
    by default it is ``echo:`` and the last text. The prompts ``__echo_body__`` and ``__echo_headers__`` answer the
    request itself. *keep_bodies* keeps every request for inspection.
    """

    def __init__(
        self, *, answer: Answer | None = None, seed: int = 1, port: int = 0, keep_bodies: bool = True, **faults: Any
    ) -> None:
        self.faults = Faults()
        self.faults.set(**faults)
        self.counters = Counters()
        self._answer = answer
        self._dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._buckets: dict[str, Bucket] = {}
        self._minute: deque[tuple[float, int]] = deque()
        self._script: deque[Step] = deque()
        self._keep = keep_bodies
        self._port = port
        self._runner: web.ServerRunner | None = None

    # -- life ------------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def start(self) -> Self:
        """Listen on the loopback; a port of 0 was replaced by a free one afterwards."""
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port, backlog=4096)
        await site.start()
        self._port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        """Close the listening socket and every connection, whatever is going on."""
        runner, self._runner = self._runner, None
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
        """What the next requests get, in order: ``"ok"``, a status, Reply, Delay, ``"reset"``, ``"hang"``…"""
        self._script.extend(step(s) for s in steps)

    def reset(self) -> None:
        """Forget the counts, the buckets and the script; the faults stay."""
        self.counters = Counters()
        self._buckets.clear()
        self._minute.clear()
        self._script.clear()

    # -- serving ---------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith("/admin/"):
            return await self._admin(request, path)
        if path == "/v1/models":
            return _json(
                {"object": "list", "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "us"}]}
            )
        if request.method != "POST" or path not in ("/v1/chat/completions", "/v1/embeddings"):
            return self._error(404, f"no route {path}")
        counters = self.counters
        now = time.monotonic()
        counters.n["received"] += 1
        counters.arrived_at.append(now)
        if request.transport is not None:
            counters.connections.add(id(request.transport))
        try:
            return await self._serve(request, path, now)
        except asyncio.CancelledError:
            counters.n["client_gone"] += 1
            raise

    async def _serve(self, request: web.BaseRequest, path: str, now: float) -> web.StreamResponse:
        scripted = self._script.popleft() if self._script else None
        refusal = await self._refusal(request, scripted, now)
        if refusal is not None:
            return refusal
        counters = self.counters
        counters.admitted_at.append(now)
        counters.inflight += 1
        counters.max_inflight = max(counters.max_inflight, counters.inflight)
        try:
            return await self._work(request, path, scripted, now)
        finally:
            counters.inflight -= 1

    async def _refusal(self, request: web.BaseRequest, scripted: Step | None, now: float) -> web.StreamResponse | None:
        """The answer that needs no work, where the script or the fault model demands one."""
        faults = self.faults
        if isinstance(scripted, Reply):
            await self._note(request, now)
            headers = {} if scripted.retry_after is None else {"Retry-After": str(scripted.retry_after)}
            return self._error(scripted.status, "scripted failure", headers, scripted.body)
        if scripted == "reset" or faults.dead == "reset":
            return self._abort(request)
        if scripted == "hang" or faults.dead == "hang":
            await self._note(request, now)
            self.counters.n["hung"] += 1
            await asyncio.Event().wait()
        if faults.dead in ("500", "503"):
            return self._error(int(faults.dead), "dead")
        wait = self._limited(request, now) if scripted is None else 0.0
        if wait > 0:
            await request.read()
            return self._error(429, "rate limit reached", faults.retry_headers(wait))
        if faults.capacity and self.counters.inflight >= faults.capacity:
            await request.read()
            return self._error(503, "server at capacity")
        return None

    def _limited(self, request: web.BaseRequest, now: float) -> float:
        """Seconds until the request would be admitted; 0.0 = it is."""
        faults = self.faults
        if faults.tokens_per_min:
            while self._minute and now - self._minute[0][0] >= 60.0:
                self._minute.popleft()
            if sum(tokens for _, tokens in self._minute) >= faults.tokens_per_min:
                return 60.0 - (now - self._minute[0][0])
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        rate = faults.key_rates.get(key, 0.0)
        if rate > 0:
            wait = self._buckets.setdefault(key, Bucket()).take(now, rate, max(1.0, rate))
            if wait > 0:
                return wait
        if faults.rate > 0:
            bucket = self._buckets.setdefault("*", Bucket())
            return bucket.take(now, faults.rate, faults.burst or faults.rate, faults.charge_rejected)
        return 0.0

    async def _work(self, request: web.BaseRequest, path: str, scripted: Step | None, now: float) -> web.StreamResponse:
        faults, dice = self.faults, self._dice
        body = await self._note(request, now)
        if body is None:
            return self._error(400, "the body is not a JSON object")
        roll = dice.random() if scripted is None else 1.0
        if roll < faults.p_reset:
            return self._abort(request)
        if roll < faults.p_reset + faults.p500:
            return self._error(500, "random failure")
        if roll < faults.p_reset + faults.p500 + faults.p400 or body.get("model") == "bad":
            return self._error(400, "invalid request")
        seconds, stalled = faults.service_time(dice)
        self.counters.n["stalled"] += stalled
        seconds += scripted.seconds if isinstance(scripted, Delay) else 0.0
        if seconds:
            await asyncio.sleep(seconds)
        if scripted == "malformed" or (faults.p_malformed and dice.random() < faults.p_malformed):
            self.counters.n["malformed"] += 1
            return web.Response(body=b'{"id": "chatcmpl-', content_type="application/json")
        if path == "/v1/embeddings":
            return self._embed(body)
        return await self._chat(request, body, truncated=scripted == "truncated")

    async def _note(self, request: web.BaseRequest, now: float) -> dict[str, Any] | None:
        """Read and remember the request; None when it is not a JSON object."""
        try:
            body = orjson.loads(await request.read())
        except orjson.JSONDecodeError:
            return None
        if not isinstance(body, dict):
            return None
        text = answers.last_text(body)
        self.counters.prompts[text] += 1
        if self._keep:
            headers = {k: v for k, v in request.headers.items() if k.lower() in _KEPT_HEADERS or k.lower()[:2] == "x-"}
            self.counters.arrivals.append(Arrival(now, text, request.path_qs, headers, body))
        return body

    async def _chat(self, request: web.BaseRequest, body: dict[str, Any], truncated: bool) -> web.StreamResponse:
        if not isinstance(body.get("messages"), list) or not body["messages"]:
            return self._error(400, "messages must be a non-empty list")
        text = answers.last_text(body)
        if text == "__echo_body__":
            answer = orjson.dumps(body).decode()
        elif text == "__echo_headers__":
            answer = orjson.dumps({str(name): value for name, value in request.headers.items()}).decode()
        else:
            answer = self._answer(body) if self._answer else f"echo:{text}"
        self._minute.append((time.monotonic(), answers.usage(text, answer)["total_tokens"]))
        if not body.get("stream"):
            self.counters.n["ok"] += 1
            return _json(answers.completion(body, answer))
        truncated = truncated or (self.faults.p_truncated > 0 and self._dice.random() < self.faults.p_truncated)
        return await self._stream(request, body, answer, truncated)

    async def _stream(
        self, request: web.BaseRequest, body: dict[str, Any], answer: str, truncated: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        for index, chunk in enumerate(answers.chunks(body, answer, self.faults.sse_tokens)):
            if truncated and index == 2:
                self.counters.n["truncated"] += 1
                self._abort(request)
                return response
            if self.faults.sse_gap_s and index:
                await asyncio.sleep(self.faults.sse_gap_s)
            await response.write(answers.event(chunk))
        await response.write(answers.event(b"[DONE]"))
        await response.write_eof()
        self.counters.n["ok"] += 1
        return response

    def _embed(self, body: dict[str, Any]) -> web.Response:
        if not body.get("input") or not isinstance(body["input"], str | list):
            return self._error(400, "input must be a string or a non-empty list")
        self.counters.n["ok"] += 1
        return _json(answers.embeddings(body, self.faults.dims, self.faults.embeddings_field))

    def _abort(self, request: web.BaseRequest) -> web.Response:
        self.counters.n["reset"] += 1
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    def _error(
        self, status: int, message: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> web.Response:
        self.counters.n[str(status)] += 1
        payload = body or orjson.dumps({"error": {"message": message, "type": "fake", "code": status}})
        return web.Response(status=status, body=payload, content_type="application/json", headers=headers)

    # -- admin -----------------------------------------------------------------------------------------------------

    async def _admin(self, request: web.BaseRequest, path: str) -> web.Response:
        if path == "/admin/stats":
            stats = {**self.counters.as_dict(), "cpu_s": time.process_time()}
            window = request.query.get("window")
            if window:
                stats["max_in_window"] = self.counters.max_in_window(float(window))
                stats["max_admitted_in_window"] = self.counters.max_in_window(float(window), admitted=True)
            return _json(stats)
        if path == "/admin/reset":
            self.reset()
            return _json({"ok": True})
        if path == "/admin/config":
            try:
                self.faults.set(**orjson.loads(await request.read()))
            except (TypeError, orjson.JSONDecodeError) as exc:
                return self._error(400, str(exc))
            return _json(asdict(self.faults))
        return self._error(404, f"no route {path}")


def _json(value: object) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type="application/json")


if __name__ == "__main__":
    from qreward.testing.standalone import main

    main()
