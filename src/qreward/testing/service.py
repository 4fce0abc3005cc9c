"""What a fake judge does with a request: fail where the script or the fault model says so, count, answer."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson
from aiohttp import web

from qreward.testing import answers
from qreward.testing.counters import Arrival, Counters
from qreward.testing.faults import Delay, Faults, Reply, Step
from qreward.testing.limits import Limits

Answer = Callable[[dict[str, Any]], str]
_KEPT_HEADERS = ("user-agent", "content-type", "accept", "idempotency-key")
_CREDENTIALS = ("authorization", "api-key", "x-api-key", "cookie")
_CHAT, _EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
_MODELS = {"object": "list", "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "qreward"}]}
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST


class Service:
    """The handler of all requests. *closing*: connections that break now are the judge's doing, not the clients'."""

    def __init__(self, faults: Faults, answer: Answer | None, seed: int, keep_bodies: bool) -> None:
        self.faults = faults
        self.counters = Counters()
        self.script: deque[Step] = deque()
        self.closing = False
        self._answer = answer
        self._dice = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._limits = Limits()
        self._keep = keep_bodies

    def reset(self) -> None:
        """Forget the counts, the limits' past and the script; the faults stay."""
        self.counters = Counters()
        self._limits = Limits()
        self.script.clear()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path.startswith("/admin/"):
            return await self._admin(request, path)
        counters = self.counters
        try:
            if request.method == "POST" and path in (_CHAT, _EMBEDDINGS):
                return await self._serve(request, path)
            if path == "/v1/models":
                return await self._dead(request) or _json(_MODELS)
            return self._error(404, f"no route {path}")
        except (asyncio.CancelledError, ConnectionError):
            if not self.closing:
                counters.n["client_gone"] += 1
            raise

    async def _serve(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        counters = self.counters
        now = time.monotonic()
        counters.n["received"] += 1
        counters.arrived_at.append(now)
        if request.transport is not None:
            counters.connections.add(request.transport.get_extra_info("peername"))
        scripted = self.script.popleft() if self.script else None
        body = self._noted(request, await request.read(), now)
        refusal = self._refusal(request, scripted) if scripted is not None else await self._dead(request)
        if refusal is None and scripted == "hang":
            refusal = await self._hang()
        refusal = refusal or self._limited(request, scripted)
        if refusal is not None:
            return refusal
        counters.admitted_at.append(now)
        counters.inflight += 1
        counters.max_inflight = max(counters.max_inflight, counters.inflight)
        try:
            return await self._work(request, path, scripted, body)
        finally:
            counters.inflight -= 1

    def _noted(self, request: web.BaseRequest, raw: bytes, now: float) -> dict[str, Any] | None:
        """The request's JSON object, remembered; None when there is none."""
        try:
            body = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(body, dict):
            return None
        if self._keep:
            text = answers.prompt_text(body)
            self.counters.arrivals.append(Arrival(now, text, request.path_qs, _kept(request), body))
        return body

    async def _dead(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """The answer of a dead endpoint; None when it is alive."""
        dead = self.faults.dead
        if dead == "no":
            return None
        if dead == "hang":
            return await self._hang()
        return self._abort(request) if dead == "reset" else self._error(int(dead), "dead")

    async def _hang(self) -> web.StreamResponse:
        self.counters.n["hung"] += 1
        never: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
        return await never

    def _refusal(self, request: web.BaseRequest, scripted: Step) -> web.StreamResponse | None:
        """The answer without work that the script demands."""
        if isinstance(scripted, Reply):
            headers = {} if scripted.retry_after is None else {"Retry-After": str(scripted.retry_after)}
            return self._error(scripted.status, "scripted failure", headers, scripted.body)
        return self._abort(request) if scripted == "reset" else None

    def _limited(self, request: web.BaseRequest, scripted: Step | None) -> web.StreamResponse | None:
        """The refusal of a request that is too much; None when it is admitted."""
        faults = self.faults
        if scripted is None:
            key = request.headers.get("Authorization", "").removeprefix("Bearer ")
            wait_s = self._limits.wait(time.monotonic(), faults, key)
            if wait_s > 0:
                return self._error(429, "rate limit reached", faults.retry_headers(wait_s))
        if faults.capacity and self.counters.inflight >= faults.capacity:
            return self._error(503, "server at capacity")
        return None

    async def _work(
        self, request: web.BaseRequest, path: str, scripted: Step | None, body: dict[str, Any] | None
    ) -> web.StreamResponse:
        if body is None:
            return self._error(400, "the body is not a JSON object")
        failure = self._failure(request) if scripted is None else None
        if failure is not None:
            return failure
        try:
            answers.check_chat(body) if path == _CHAT else answers.check_embeddings(body)
        except answers.BadRequest as exc:
            return self._error(400, str(exc))
        self.counters.prompts[answers.prompt_text(body)] += 1
        seconds, stalled = self.faults.service_time(self._dice)
        self.counters.n["stalled"] += stalled
        seconds += scripted.seconds if isinstance(scripted, Delay) else 0.0
        if seconds:
            await asyncio.sleep(seconds)
        flaw = scripted if scripted in ("malformed", "truncated") else None if scripted else self._flaw()
        if flaw == "malformed":
            return self._malformed(body)
        if path == _CHAT:
            return await self._chat(request, body, truncated=flaw == "truncated")
        faults = self.faults
        answer = answers.embeddings(body, faults.dims, faults.embeddings_field)
        self._limits.used(time.monotonic(), answer["usage"]["total_tokens"])
        return await self._whole(request, answer, truncated=flaw == "truncated")

    def _failure(self, request: web.BaseRequest) -> web.StreamResponse | None:
        """A random failure; None when the request is well."""
        faults, roll = self.faults, self._dice.random()
        if roll < faults.p_reset:
            return self._abort(request)
        if roll < faults.p_reset + faults.p500:
            return self._error(500, "random failure")
        if roll < faults.p_reset + faults.p500 + faults.p400:
            return self._error(400, "invalid request")
        return None

    def _flaw(self) -> str | None:
        """What is wrong with an answer that is under way, by chance."""
        if self.faults.p_malformed and self._dice.random() < self.faults.p_malformed:
            return "malformed"
        if self.faults.p_truncated and self._dice.random() < self.faults.p_truncated:
            return "truncated"
        return None

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _chat(self, request: web.BaseRequest, body: dict[str, Any], truncated: bool) -> web.StreamResponse:
        text = answers.last_text(body)
        try:
            answer = self._text(request, body, text)
        except Exception as exc:  # the user's function may raise anything
            return self._error(500, f"answer(body) failed: {exc!r}")
        self._limits.used(time.monotonic(), answers.usage(text, answer)["total_tokens"])
        if body.get("stream"):
            return await self._stream(request, body, answer, truncated)
        return await self._whole(request, answers.completion(body, answer), truncated)

    def _text(self, request: web.BaseRequest, body: dict[str, Any], text: str) -> str:
        if text == "__echo_body__":
            return orjson.dumps(body).decode()
        if text == "__echo_headers__":
            return orjson.dumps({str(name): value for name, value in request.headers.items()}).decode()
        return self._answer(body) if self._answer else f"echo:{text}"

    async def _whole(self, request: web.BaseRequest, answer: dict[str, Any], truncated: bool) -> web.StreamResponse:
        if not truncated:
            self.counters.n["ok"] += 1
            return _json(answer)
        raw = orjson.dumps(answer)
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(raw))})
        await response.prepare(request)
        await response.write(raw[: len(raw) // 2])
        return self._cut(request, response)

    async def _stream(
        self, request: web.BaseRequest, body: dict[str, Any], answer: str, truncated: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        for index, chunk in enumerate(answers.chunks(body, answer, self.faults.sse_tokens)):
            if truncated and (index == 2 or not chunk["choices"] or chunk["choices"][0]["finish_reason"]):
                return self._cut(request, response)
            if self.faults.sse_gap_s and index:
                await asyncio.sleep(self.faults.sse_gap_s)
            await response.write(answers.event(chunk))
        await response.write(answers.event(b"[DONE]"))
        await response.write_eof()
        self.counters.n["ok"] += 1
        return response

    def _malformed(self, body: dict[str, Any]) -> web.Response:
        self.counters.n["malformed"] += 1
        broken = b'{"id": "chatcmpl-'
        if body.get("stream"):
            return web.Response(body=answers.event(broken), content_type="text/event-stream")
        return web.Response(body=broken, content_type="application/json")

    def _cut(self, request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
        """End an answer in the middle."""
        self.counters.n["truncated"] += 1
        if request.transport is not None:
            request.transport.abort()
        return response

    def _abort(self, request: web.BaseRequest) -> web.Response:
        """Reset the connection instead of an answer."""
        self.counters.n["reset"] += 1
        if request.transport is not None:
            request.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            request.transport.abort()
        return web.Response(status=500)

    def _error(
        self, status: int, message: str, headers: dict[str, str] | None = None, body: bytes | None = None
    ) -> web.Response:
        self.counters.n[str(status)] += 1
        payload = (
            orjson.dumps({"error": {"message": message, "type": "fake", "code": status}}) if body is None else body
        )
        return web.Response(status=status, body=payload, content_type="application/json", headers=headers)

    # -- admin -----------------------------------------------------------------------------------------------------

    async def _admin(self, request: web.BaseRequest, path: str) -> web.Response:
        try:
            if path == "/admin/stats":
                return _json(self._stats(request.query.get("window")))
            if path == "/admin/reset":
                self.reset()
                return _json({"ok": True})
            if path == "/admin/config":
                self.faults.set(**orjson.loads(await request.read()))
                return _json(asdict(self.faults))
        except (TypeError, ValueError) as exc:
            return _json({"error": {"message": str(exc), "type": "fake", "code": 400}}, 400)
        return _json({"error": {"message": f"no route {path}", "type": "fake", "code": 404}}, 404)

    def _stats(self, window: str | None) -> dict[str, Any]:
        stats = {**self.counters.as_dict(), "cpu_s": time.process_time()}
        if window:
            stats["max_in_window"] = self.counters.max_in_window(float(window))
            stats["max_admitted_in_window"] = self.counters.max_in_window(float(window), admitted=True)
        return stats


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(status=status, body=orjson.dumps(value), content_type="application/json")


def _kept(request: web.BaseRequest) -> dict[str, str]:
    kept = {}
    for name, value in request.headers.items():
        lower = name.lower()
        if lower in _CREDENTIALS:
            kept[lower] = "***"
        elif lower in _KEPT_HEADERS or lower.startswith("x-"):
            kept[lower] = value
    return kept
