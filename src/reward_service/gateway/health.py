"""What the gateway says about itself; answered from what it already knows, never by asking a replica."""

from __future__ import annotations

import time
from typing import Any

from reward_service.gateway.group import RewardGroup
from reward_service.gateway.redact import without_paths
from reward_service.gateway.replica import Replica
from reward_service.gateway.service import Gateway

STARTING, OK, DEGRADED, FAILED, DRAINING = "starting", "ok", "degraded", "failed", "draining"


def status_of(gateway: Gateway) -> str:
    """One word for the whole service.

    starting: a replica has been neither ready nor failed yet. failed: a required reward has failed; the others
    are served. degraded: an optional reward has failed, or a replica of a ready one is away. draining: going down.
    """
    if gateway.draining:
        return DRAINING
    groups = gateway.groups.values()
    if not all(replica.settled for group in groups for replica in group.replicas):
        return STARTING
    if any(group.failure is not None and group.config.required for group in groups):
        return FAILED
    if all(replica.link is not None for group in groups for replica in group.replicas):
        return OK
    return DEGRADED


def is_ready(gateway: Gateway) -> bool:
    """Whether to send work here."""
    return status_of(gateway) in (OK, DEGRADED)


def health(gateway: Gateway) -> dict[str, Any]:
    """Body of ``GET /health``: the existing service's fields, and `details` per reward."""
    return {
        "status": status_of(gateway),
        "rewards": {
            name: [f"{group.config.scorer}:{_state(replica)}" for replica in group.replicas]
            for name, group in sorted(gateway.groups.items())
        },
        "details": {name: _details(group, gateway) for name, group in sorted(gateway.groups.items())},
        "requests_in_flight": gateway.requests,
        "body_bytes_in_flight": gateway.bodies.used,
        "decoded_bytes_in_flight": gateway.arena.used,
        "uptime_s": round(time.monotonic() - gateway.started, 1),
    }


def _state(replica: Replica) -> str:
    if replica.state == "ready" and replica.link is None:
        return "connecting"
    return replica.state


def _details(group: RewardGroup, gateway: Gateway) -> dict[str, Any]:
    return {
        "queued": group.queue.live(),
        "scored_items": group.completed,
        "failed_items": group.failed_items,
        "batches": group.batches,
        "required": group.config.required,
        "replicas": [_replica(replica, gateway) for replica in group.replicas],
    }


def _replica(replica: Replica, gateway: Gateway) -> dict[str, Any]:
    expose = gateway.config.server.expose_tracebacks
    known: dict[str, Any] = {
        "state": _state(replica),
        "for_s": round(time.monotonic() - replica.since, 1),
        "restarts": replica.restarts,
        "pid": replica.pid,
    }
    if replica.link is not None:
        known["transport"] = "shared memory" if replica.link.shares_memory else "tcp"
    if replica.detail:
        known["detail"] = replica.detail if expose else brief(replica.detail)
    if replica.reason:
        known["reason"] = replica.reason if expose else brief(replica.reason)
    if replica.traceback and expose:
        known["traceback"] = replica.traceback
    return known


def brief(text: str) -> str:
    """The first line of *text* without paths: what follows (an installer's output, say) is for the log."""
    return without_paths(text.strip().partition("\n")[0])[:500]
