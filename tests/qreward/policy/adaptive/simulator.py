"""A closed loop of callers behind an adaptive gate and a server, event by event, in virtual time and seeded."""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from qreward.policy.adaptive import AdaptiveLimit

RETRY_BASE_S = 0.5
ATTEMPTS = 5


@dataclass(frozen=True)
class Reply:
    """What a server decides when a request arrives."""

    status: int
    after_s: float
    retry_after_s: float | None = None


@dataclass
class Server:
    """Answers everything, after a lognormal service time; slower than that when *slots* are exceeded."""

    latency_s: float = 0.04
    sigma: float = 0.35
    slots: int | None = None
    stall_share: float = 0.0
    stall_s: float = 3.0
    error_share: float = 0.0
    reset_share: float = 0.0
    inflight: int = 0

    def refuse(self, now: float, dice: random.Random) -> Reply | None:
        return None

    def arrive(self, now: float, dice: random.Random) -> Reply:
        refusal = self.refuse(now, dice)
        if refusal is not None:
            return refusal
        roll = dice.random()
        if roll < self.reset_share:
            return Reply(0, 0.0005)
        if roll < self.reset_share + self.error_share:
            return Reply(500, 0.0005)
        service = self.latency_s * math.exp(dice.gauss(0.0, self.sigma))
        if self.slots is not None:
            service *= max(1.0, (self.inflight + 1) / self.slots)
        if dice.random() < self.stall_share:
            service += self.stall_s
        return Reply(200, service)


@dataclass
class Bucket(Server):
    """A token bucket; *retry_after* is "exact", "ceil", "none" or "fixed:SECONDS"; *changes* are (moment, rate)."""

    rate: float = 200.0
    burst: float = 20.0
    retry_after: str = "exact"
    charge_rejected: bool = False
    changes: tuple[tuple[float, float], ...] = ()
    status: int = 429
    level: float | None = None
    at: float = 0.0

    def refuse(self, now: float, dice: random.Random) -> Reply | None:
        for moment, rate in self.changes:
            if now >= moment:
                self.rate = rate
        level = self.burst if self.level is None else min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if level >= 1.0:
            self.level = level - 1.0
            return None
        if self.charge_rejected:
            level = max(level - 1.0, -self.burst)
        self.level = level
        return Reply(self.status, dice.uniform(0.0002, 0.0006), self.hint((1.0 - level) / self.rate))

    def hint(self, wait_s: float) -> float | None:
        if self.retry_after == "none":
            return None
        if self.retry_after == "ceil":
            return float(max(1, math.ceil(wait_s)))
        if self.retry_after.startswith("fixed:"):
            return float(self.retry_after[6:])
        return round(wait_s, 3)


@dataclass
class Capacity(Server):
    """Refuses what exceeds *capacity* calls at once; *changes* are (moment, capacity)."""

    capacity: int = 64
    changes: tuple[tuple[float, int], ...] = ()
    status: int = 503

    def refuse(self, now: float, dice: random.Random) -> Reply | None:
        for moment, capacity in self.changes:
            if now >= moment:
                self.capacity = capacity
        if self.inflight < self.capacity:
            return None
        return Reply(self.status, dice.uniform(0.0002, 0.0006))


@dataclass
class Window(Server):
    """A quota per fixed window of the server's clock; refusals say how long it lasts, in whole seconds."""

    quota: int = 600
    window_s: float = 60.0
    phase_s: float = 20.0
    number: int = -1
    used: int = 0

    def refuse(self, now: float, dice: random.Random) -> Reply | None:
        number, into = divmod(now + self.phase_s, self.window_s)
        if number != self.number:
            self.number, self.used = int(number), 0
        if self.used < self.quota:
            self.used += 1
            return None
        return Reply(429, dice.uniform(0.0002, 0.0006), float(math.ceil(self.window_s - into)))


@dataclass
class Result:
    """What happened. *finished* holds the moment at which each answered call was answered."""

    wall_s: float = 0.0
    sent: int = 0
    rejected: int = 0
    failed: int = 0
    lost: int = 0
    max_inflight: int = 0
    finished: list[float] = field(default_factory=list)
    rejections: list[float] = field(default_factory=list)
    limits: list[tuple[float, int, float | None]] = field(default_factory=list)

    def throughput(self, begin: float, end: float) -> float:
        """Answers per second between two moments."""
        return sum(begin <= t < end for t in self.finished) / (end - begin)


class FixedLimit:
    """Lets *limit* calls be in flight and learns nothing: what a caller who knows the server would use."""

    rate: float | None = None

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def wait(self, now: float) -> float:
        return 0.0

    def ignore(self, *_: object) -> None:
        pass

    started = succeeded = overloaded = failed = ignore


class Simulation:
    """*callers* make *calls* calls in all, as fast as the gate lets them, and retry refused and failed ones.

    The way to the server takes *way_s* and a little, and as long back.
    """

    def __init__(
        self,
        policy: AdaptiveLimit | FixedLimit,
        server: Server,
        *,
        callers: int = 64,
        calls: int = 2000,
        seed: int = 1,
        way_s: float = 0.0,
    ) -> None:
        self.policy, self.server, self.way_s = policy, server, way_s
        self.dice = random.Random(seed)
        self.left, self.callers = calls, callers
        self.queue: deque[int] = deque()
        self.inflight = 0
        self.armed: float | None = None
        self.events: list[tuple[float, int, Callable[[float], None]]] = []
        self.sequence = 0
        self.result = Result()

    def at(self, moment: float, what: Callable[[float], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (moment, self.sequence, what))

    def run(self, until_s: float = math.inf) -> Result:
        for _ in range(self.callers):
            self.at(0.0, self.next_call)
        while self.events:
            now, _, what = heapq.heappop(self.events)
            if now > until_s:
                break
            what(now)
        return self.result

    def next_call(self, now: float) -> None:
        if self.left > 0:
            self.left -= 1
            self.enter(now, 0)

    def enter(self, now: float, failures: int) -> None:
        self.queue.append(failures)
        self.pump(now)

    def pump(self, now: float) -> None:
        while self.queue and self.inflight < self.policy.limit:
            wait = self.policy.wait(now)
            if wait > 0.0:
                if self.armed is None or not now < self.armed <= now + wait:
                    self.armed = now + wait
                    self.at(now + wait + self.dice.uniform(0.0, 0.0012), self.fire(self.armed))
                return
            self.start(now, self.queue.popleft())

    def fire(self, armed: float) -> Callable[[float], None]:
        def wake(now: float) -> None:
            if self.armed == armed:
                self.armed = None
            self.pump(now)

        return wake

    def start(self, now: float, failures: int) -> None:
        self.inflight += 1
        result = self.result
        result.sent += 1
        result.max_inflight = max(result.max_inflight, self.inflight)
        self.policy.started(now, self.inflight)

        def arrive(at_server: float) -> None:
            reply = self.server.arrive(at_server, self.dice)
            self.server.inflight += 1
            self.at(at_server + reply.after_s, leave(reply))

        def leave(reply: Reply) -> Callable[[float], None]:
            def left(at_server: float) -> None:
                self.server.inflight -= 1
                self.at(
                    at_server + self.way_s + self.dice.uniform(0.0003, 0.0007),
                    lambda t: self.settle(t, now, failures, reply),
                )

            return left

        self.at(now + self.way_s + self.dice.uniform(0.0003, 0.0009), arrive)

    def settle(self, now: float, started_at: float, failures: int, reply: Reply) -> None:
        result = self.result
        if reply.status == 200:
            self.policy.succeeded(now, started_at, now - started_at, self.inflight)
            result.finished.append(now)
            result.wall_s = now
        elif reply.status in (429, 503):
            result.rejected += 1
            result.rejections.append(now)
            self.policy.overloaded(now, started_at, reply.retry_after_s, reply.status)
        else:
            result.failed += 1
            self.policy.failed(now, started_at, False)
        self.inflight -= 1
        result.limits.append((now, self.policy.limit, self.policy.rate))
        if reply.status == 200:
            self.next_call(now)
        elif failures + 1 >= ATTEMPTS:
            result.lost += 1
            self.next_call(now)
        else:
            wait = self.dice.random() * min(30.0, RETRY_BASE_S * 2**failures)
            if reply.retry_after_s is not None:
                wait = reply.retry_after_s + 0.1 * wait
            self.at(now + max(wait, 0.001), lambda t: self.enter(t, failures + 1))
        self.pump(now)
