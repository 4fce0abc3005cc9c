"""A reward service without scorers: speaks the wire contract, records what arrives, fails on demand.

with FakeRewardServer(rewards=("clip",)) as server:
    server.faults += [Fault(status=503, headers={"Retry-After": "0"}), Fault(drop=True)]
    RewardClient(server.url).score([...])
    assert len(server.posts) == 3
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import orjson
from aiohttp import web

from reward_service.aggregation import Aggregation

MSGPACK = "application/x-msgpack"
IDENTITY_FIELDS = (
    "request_id",
    "sample_id",
    "group_id",
    "source_rank",
    "policy_version",
    "scorer_version",
    "idempotency_key",
)
_START_TIMEOUT_S = 10.0

# One wire request → what the server puts into ``results[i]`` and ``errors[i]``.
Scorer = Callable[[Mapping[str, Any]], tuple[dict[str, Any], dict[str, str]]]


@dataclass(frozen=True)
class Fault:
    """What happens to one POST instead of a proper answer; exactly one of the first four.

    status: answer with this status, *headers* and *body*; status 200 sends a broken answer.
    drop: close the connection without an answer.
    hang: never answer.
    gate: answer properly, but only after `FakeRewardServer.open_gate`.
    after_scoring: the items are scored first, so that the client does not know it.
    """

    status: int | None = None
    drop: bool = False
    hang: bool = False
    gate: bool = False
    after_scoring: bool = False
    body: bytes = b'{"detail": "scripted fault"}'
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Post:
    """One arrived POST: parsed body, headers, and the client's port, which tells connections apart."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    port: int
    size: int

    @property
    def requests(self) -> list[dict[str, Any]]:
        """The items."""
        requests: list[dict[str, Any]] = self.body["requests"]
        return requests

    @property
    def keys(self) -> list[str]:
        """The items' idempotency keys."""
        return [request["idempotency_key"] for request in self.requests]

    @property
    def texts(self) -> list[str]:
        """The texts of the items' last turns."""
        return [request["history"][-1]["text"] for request in self.requests]

    def media(self, item: int, turn: int = -1, kind: str = "image") -> bytes:
        """The encoded image (or video) of a turn, whatever the body format."""
        fields = self.requests[item]["history"][turn]
        raw = fields.get(kind)
        return raw if isinstance(raw, bytes) else base64.b64decode(fields[f"{kind}_b64"])


def text_length_scorer(request: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Every reward is the number of characters of the last text."""
    length = float(len(request["history"][-1]["text"]))
    return {name: {name: length} for name in request["required_rewards"]}, {}


class FakeRewardServer:
    """An HTTP server on 127.0.0.1 in a thread of its own; a context manager.

    posts, health_checks: what arrived. scored: how often each idempotency key was really scored. aborted: how
    many POSTs the client gave up. faults: taken one per POST, first come first served.
    Raises nothing by itself; use `wait_for` instead of sleeping.
    """

    def __init__(
        self,
        rewards: Sequence[str] = ("clip",),
        scorer: Scorer = text_length_scorer,
        *,
        faults: Iterable[Fault] = (),
        max_items: int | None = None,
        max_body_bytes: int | None = None,
        port: int = 0,
    ) -> None:
        self.rewards = sorted(rewards)
        self.scorer = scorer
        self.faults: deque[Fault] = deque(faults)
        self.max_items = max_items
        self.max_body_bytes = max_body_bytes
        self.posts: list[Post] = []
        self.scored: Counter[str] = Counter()
        self.health_checks = 0
        self.aborted = 0
        self.port = port
        self._answers: dict[str, tuple[dict[str, Any], dict[str, str]]] = {}
        self._changed = threading.Condition()
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._gate = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="fake-reward-server", daemon=True)

    @property
    def url(self) -> str:
        """Base URL for a client."""
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, happened: Callable[[FakeRewardServer], bool], timeout_s: float = 20.0) -> None:
        """Block until ``happened(self)``; raises TimeoutError that tells what did happen."""
        with self._changed:
            if not self._changed.wait_for(lambda: happened(self), timeout_s):
                raise TimeoutError(f"after {timeout_s} s: {len(self.posts)} posts, {self.aborted} aborted")

    def open_gate(self) -> None:
        """Let the POSTs with ``Fault(gate=True)`` be answered."""
        self._loop.call_soon_threadsafe(self._gate.set)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._started.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the fake server did not start within {_START_TIMEOUT_S} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        app = web.Application(client_max_size=2**30)
        app.add_routes(
            [
                web.post("/score", self._score),
                web.get("/health", self._health),
                web.get("/rewards", self._rewards),
            ]
        )
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        self._loop.run_until_complete(self._listen(runner))
        self._started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _listen(self, runner: web.AppRunner) -> None:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        self.port = runner.addresses[0][1]

    async def _health(self, request: web.Request) -> web.Response:
        with self._changed:
            self.health_checks += 1
            self._changed.notify_all()
        return web.json_response({"status": "ok", "rewards": {name: [f"{name}:ready"] for name in self.rewards}})

    async def _rewards(self, request: web.Request) -> web.Response:
        return web.json_response({"rewards": self.rewards})

    async def _score(self, request: web.Request) -> web.StreamResponse:
        if self.max_body_bytes is not None and (request.content_length or 0) > self.max_body_bytes:
            # As a gateway does it: refused by its length, the body unread.
            return _refused(request, 413, f"the body has {request.content_length} bytes; at most {self.max_body_bytes}")
        raw = await request.read()
        body = _parse(raw, request.content_type)
        if body is None:
            return _refused(request, 422, "the body cannot be parsed")
        peer = request.transport.get_extra_info("peername") if request.transport else ("", 0)
        with self._changed:
            self.posts.append(Post(body, dict(request.headers), peer[1], len(raw)))
            fault = self.faults.popleft() if self.faults else Fault()
            self._changed.notify_all()
        try:
            return await self._answer(request, body, fault)
        except asyncio.CancelledError:
            with self._changed:
                self.aborted += 1
                self._changed.notify_all()
            raise

    async def _answer(self, request: web.Request, body: dict[str, Any], fault: Fault) -> web.StreamResponse:
        if fault.after_scoring:
            self._scores(body)
        if fault.gate:
            await self._gate.wait()
        if fault.hang:
            await asyncio.Event().wait()
        if fault.drop:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)
        if fault.status is not None:
            headers = {"Content-Type": "application/json", **fault.headers}
            return web.Response(status=fault.status, body=fault.body, headers=headers)
        if problem := self._problem(body):
            return _refused(request, *problem)
        return _encoded(request, self._scores(body))

    def _problem(self, body: dict[str, Any]) -> tuple[int, str] | None:
        requests = body.get("requests")
        if not isinstance(requests, list):
            return 422, "body.requests: Field required"
        if self.max_items is not None and len(requests) > self.max_items:
            return 413, f"{len(requests)} items in one request; at most {self.max_items}"
        for index, request in enumerate(requests):
            for name in request["required_rewards"]:
                if name not in self.rewards:
                    return 400, f"requests[{index}]: unknown reward {name!r}; available: {self.rewards}"
            for turn in request["history"]:
                if not _decodable(turn.get("image_b64")) or not _decodable(turn.get("video_b64")):
                    return 400, f"requests[{index}]: invalid base64"
        return None

    def _scores(self, body: dict[str, Any]) -> dict[str, Any]:
        answers = [self._score_once(request) for request in body["requests"]]
        answer: dict[str, Any] = {
            "results": [results for results, _ in answers],
            "errors": [errors for _, errors in answers],
            "identities": [{name: r.get(name) for name in IDENTITY_FIELDS} for r in body["requests"]],
            "protocol_version": "1",
        }
        if body.get("aggregation") is not None:
            rule = Aggregation.from_mapping(body["aggregation"])
            answer["aggregated"] = [
                rule.aggregate(results, request["required_rewards"])
                for (results, _), request in zip(answers, body["requests"], strict=True)
            ]
        return answer

    def _score_once(self, request: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        key = request.get("idempotency_key")
        if key is not None and key in self._answers:
            return self._answers[key]
        answer = self.scorer(request)
        if key is not None:
            self.scored[key] += 1
            self._answers[key] = answer
        return answer


def _parse(raw: bytes, content_type: str) -> dict[str, Any] | None:
    body: Any = None
    with contextlib.suppress(ValueError):
        if content_type == MSGPACK:
            import msgspec

            body = msgspec.msgpack.decode(raw)
        else:
            body = orjson.loads(raw)
    return body if isinstance(body, dict) else None


def _decodable(data: str | None) -> bool:
    try:
        base64.b64decode(data or "", validate=True)
    except binascii.Error:
        return False
    return True


def _refused(request: web.Request, status: int, detail: str) -> web.Response:
    return _encoded(request, {"detail": detail}, status)


def _encoded(request: web.Request, answer: dict[str, Any], status: int = 200) -> web.Response:
    """*answer* in the format that the client accepts."""
    if MSGPACK in request.headers.get("Accept", ""):
        import msgspec

        return web.Response(body=msgspec.msgpack.encode(answer), content_type=MSGPACK, status=status)
    return web.Response(body=orjson.dumps(answer), content_type="application/json", status=status)
