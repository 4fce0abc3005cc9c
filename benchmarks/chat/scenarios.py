"""What the servers of a chat benchmark do, and which clients are worth running against them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Scenario:
    """One kind of server.

    limit: the client that shows what is physically possible. faults: options of `qreward.testing.judge`. event: what
    happens to the last of the *judges* when a quarter of the calls has come. clients: those that run besides the limit;
    old: those that QReward 0.1.7 runs too. callers: over the concurrency of the command line. options: for the clients.
    """

    title: str
    limit: str
    clients: tuple[str, ...]
    old: tuple[str, ...] = ("proxy",)
    faults: dict[str, Any] = field(default_factory=dict)
    judges: int = 1
    event: Literal["kill", "hang"] | None = None
    callers: int = 1
    options: dict[str, Any] = field(default_factory=dict)


_SLOW = {"latency_s": 0.04, "sigma": 0.35}

SCENARIOS = {
    "perfect": Scenario(
        "40 ms", "aiohttp", ("openai", "proxy", "batch", "scheduled"), old=("proxy", "batch", "scheduled"), faults=_SLOW
    ),
    "nolatency": Scenario("answers at once", "aiohttp", ("openai", "proxy", "batch"), old=("proxy", "batch")),
    "stalls": Scenario(
        "1 % of the answers take 3 s more",
        "aiohttp-hedged",
        ("aiohttp", "openai", "proxy", "hedged", "hedged-p99", "hedged-p95"),
        old=("hedged",),
        faults={**_SLOW, "stall_prob": 0.01, "stall_s": 3.0},
        options={"hedge_s": 0.15},
    ),
    "limited": Scenario(
        "200 requests per second, then 429",
        "aiohttp-paced",
        ("openai", "proxy", "told"),
        old=("proxy", "told"),
        faults={**_SLOW, "rate": 200.0, "burst": 20.0},
        options={"rate": 200.0},
    ),
    "capacity": Scenario(
        "64 at once, then 503; four times the callers",
        "aiohttp-sized",
        ("aiohttp-retry", "openai", "proxy"),
        faults={**_SLOW, "capacity": 64},
        callers=4,
        options={"capacity": 64},
    ),
    "flaky": Scenario(
        "2 % answer 500, 1 % are reset",
        "aiohttp-retry",
        ("openai", "proxy"),
        faults={**_SLOW, "p500": 0.02, "p_reset": 0.01},
    ),
    "death": Scenario(
        "one of two endpoints is killed",
        "aiohttp-failover",
        ("openai", "manager", "selected"),
        old=("selected",),
        faults=_SLOW,
        judges=2,
        event="kill",
    ),
    "hang": Scenario(
        "one of two endpoints stops answering; timeout 5 s",
        "aiohttp-failover",
        ("openai", "manager", "selected"),
        old=("selected",),
        faults=_SLOW,
        judges=2,
        event="hang",
        options={"timeout_s": 5.0},
    ),
}
