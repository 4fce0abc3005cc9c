"""The load: a fixed number of callers, each of which sends its next request when the last one is answered."""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp
import orjson

HEARTBEAT_S = 30.0


@dataclass(frozen=True)
class Point:
    """One measurement. rewards: asked of every item. batch_size: items per request."""

    rewards: tuple[str, ...]
    concurrency: int
    batch_size: int
    repetition: int = 1


@dataclass(frozen=True)
class Target:
    """Where requests go. timeout_s: for one request, None waits for ever. trust_env: use its proxies."""

    url: str
    timeout_s: float | None = None
    trust_env: bool = False


@dataclass
class Result:
    """What came back.

    latencies_s: of successful requests, in the order of their ends. transport_errors: requests without a
    usable answer, by the class of their error or their HTTP status. reward_failures: items per reward whose
    scores are missing, empty or not finite. scores: finite values per ``reward.sub_metric``.
    """

    point: Point
    seconds: float = 0.0
    failed: int = 0
    latencies_s: array[float] = field(default_factory=lambda: array("d"))
    transport_errors: Counter[str] = field(default_factory=Counter)
    reward_failures: Counter[str] = field(default_factory=Counter)
    scores: dict[str, array[float]] = field(default_factory=dict)

    @property
    def successful(self) -> int:
        """Requests of which every item has every score."""
        return len(self.latencies_s)

    @property
    def items_per_second(self) -> float:
        """Items of successful requests over the wall time of the whole measurement."""
        return self.successful * self.point.batch_size / self.seconds if self.seconds else 0.0


class Progress(Protocol):
    """Is told how a measurement goes."""

    def advance(self, ok: bool) -> None:
        """A request has ended."""

    def beat(self) -> None:
        """Half a minute has passed."""


async def measure(target: Target, point: Point, body: bytes, total: int, progress: Progress) -> Result:
    """Send *total* requests with *body* from ``point.concurrency`` callers, each on its own connection."""
    result = Result(point)
    tickets = iter(range(total))
    connector = aiohttp.TCPConnector(limit=point.concurrency)
    timeout = aiohttp.ClientTimeout(total=target.timeout_s)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=target.trust_env) as session:
        began = time.perf_counter()
        callers = {
            asyncio.create_task(_caller(session, target.url, body, tickets, result, progress))
            for _ in range(min(point.concurrency, total))
        }
        await _until_done(callers, progress)
        result.seconds = time.perf_counter() - began
    return result


async def _until_done(callers: set[asyncio.Task[None]], progress: Progress) -> None:
    pending = callers
    try:
        while pending:
            done, pending = await asyncio.wait(pending, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_EXCEPTION)
            for caller in done:
                caller.result()
            if pending:
                progress.beat()
    finally:
        for caller in pending:
            caller.cancel()


async def _caller(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes,
    tickets: Iterator[int],
    result: Result,
    progress: Progress,
) -> None:
    headers = {"Content-Type": "application/json"}
    for _ in tickets:
        began = time.perf_counter()
        try:
            async with session.post(f"{url}/score", data=body, headers=headers) as response:
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            ok = _lost(result, type(error).__name__)
        else:
            ended = time.perf_counter()
            ok = take_answer(result, answer) if status == 200 else _lost(result, f"HTTP {status}")
            if ok:
                result.latencies_s.append(ended - began)
        progress.advance(ok)


def take_answer(result: Result, answer: bytes) -> bool:
    """Enter an HTTP 200 into *result*; whether every item has every score."""
    try:
        rows = orjson.loads(answer)["results"]
        good = [_take_item(result, row) for row in rows]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        return _lost(result, "InvalidAnswer")
    if len(good) != result.point.batch_size:
        return _lost(result, "InvalidAnswer")
    if not all(good):
        result.failed += 1
        return False
    return True


def _take_item(result: Result, row: Mapping[str, Any]) -> bool:
    good = True
    for reward in result.point.rewards:
        metrics = row.get(reward) or {}
        for name, value in metrics.items():
            if _is_score(value):
                result.scores.setdefault(f"{reward}.{name}", array("d")).append(value)
        if not metrics or not all(map(_is_score, metrics.values())):
            result.reward_failures[reward] += 1
            good = False
    return good


def _is_score(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _lost(result: Result, kind: str) -> bool:
    result.failed += 1
    result.transport_errors[kind] += 1
    return False
