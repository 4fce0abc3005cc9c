"""The load: a closed loop of callers that post prebuilt bodies and check every answer."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp
import orjson
import uvloop
from bodies import Body
from cases import Case

# After the last request is sent, answers are awaited for this long; what is left then is unfinished.
DRAIN_S = 90.0
# Requests before the clock starts.
WARM_UP = 4
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Load:
    """What came back. client_cpu_ms: CPU of the load generator per item. bad: kinds of wrong answers."""

    requests: int
    wall_s: float
    item_s: float
    p50_ms: float
    p99_ms: float
    client_cpu_ms: float
    bad: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def drive(
    url: str,
    case: Case,
    bodies: Sequence[Body],
    seconds: float,
    *,
    clock_starts: Callable[[], None] = lambda: None,
) -> Load:
    """Send for *seconds*, then wait for the answers that are out; *clock_starts* is called after the warm-up.

    An answer without a status of 200, a result per item, or a number for every reward is bad, and so is one
    that belongs to another prompt; it counts for no throughput.
    """
    return uvloop.run(_Callers(f"{url}/score", case, bodies).run(seconds, clock_starts))


class _Callers:
    def __init__(self, url: str, case: Case, bodies: Sequence[Body]) -> None:
        self._url = url
        self._case = case
        self._bodies = bodies
        self._sent = 0
        self._latencies: list[float] = []
        self._bad: Counter[str] = Counter()

    async def run(self, seconds: float, clock_starts: Callable[[], None]) -> Load:
        # aiohttp would rather stream a large body; these are in memory already.
        warnings.filterwarnings("ignore", "Sending a large body", ResourceWarning)
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=seconds + DRAIN_S)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            await asyncio.gather(*(self._one(session) for _ in range(min(self._case.callers, WARM_UP))))
            self._latencies.clear()
            clock_starts()
            cpu, began = time.process_time(), time.perf_counter()
            await self._all(session, began + seconds)
            wall = time.perf_counter() - began
        return self._load(wall, time.process_time() - cpu)

    async def _all(self, session: aiohttp.ClientSession, until: float) -> None:
        async def caller() -> None:
            while time.perf_counter() < until:
                await self._one(session)

        tasks = [asyncio.create_task(caller()) for _ in range(self._case.callers)]
        _, unfinished = await asyncio.wait(tasks, timeout=until + DRAIN_S - time.perf_counter())
        for task in unfinished:
            task.cancel()
        if unfinished:
            self._bad["unfinished"] += len(unfinished)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, session: aiohttp.ClientSession) -> None:
        body = self._bodies[self._sent % len(self._bodies)]
        self._sent += 1
        began = time.perf_counter()
        try:
            async with session.post(self._url, data=body.json, headers=JSON) as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            self._bad[type(error).__name__] += 1
            return
        problem = f"HTTP {response.status}" if response.status != 200 else wrong_with(raw, self._case, body)
        if problem is None:
            self._latencies.append(time.perf_counter() - began)
        else:
            self._bad[problem] += 1

    def _load(self, wall: float, cpu: float) -> Load:
        items = len(self._latencies) * self._case.shape.items
        ordered = sorted(self._latencies) or [float("nan")]
        return Load(
            requests=len(self._latencies),
            wall_s=round(wall, 2),
            item_s=round(items / wall, 1),
            p50_ms=round(1e3 * ordered[len(ordered) // 2], 2),
            p99_ms=round(1e3 * ordered[int(0.99 * len(ordered))], 2),
            client_cpu_ms=round(1e3 * cpu / max(1, items), 3),
            bad=dict(self._bad),
        )


def wrong_with(raw: bytes, case: Case, body: Body) -> str | None:
    """Why an answer is not complete and right; None when it is."""
    try:
        results = orjson.loads(raw)["results"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "no results"
    if len(results) != case.shape.items:
        return "results missing"
    for result, length in zip(results, body.text_lengths, strict=True):
        for reward in case.shape.rewards:
            values = list(result.get(reward, {}).values())
            if not values or any(not isinstance(value, int | float) for value in values):
                return f"no {reward}"
        # The noop scorer answers the length of its prompt.
        if "noop" in case.shape.rewards and result["noop"].get("noop", length) != length:
            return "answer of another item"
    return None
