"""One reward's replicas and its queue: whoever has room takes the next batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from reward_service.config import RewardConfig, ServiceConfig
from reward_service.errors import Overloaded
from reward_service.gateway.queue import RewardQueue
from reward_service.gateway.redact import without_paths
from reward_service.gateway.replica import Batch, Replica, ScorerLink
from reward_service.gateway.work import Work
from reward_service.workers.protocol import Message

log = logging.getLogger(__name__)
# An item may see its process die this often: once with its neighbours, once alone.
MOST_DEATHS = 2


class RewardGroup:
    """The gateway's view of one reward."""

    def __init__(self, config: RewardConfig, service: ServiceConfig, on_change: Callable[[Replica], None]) -> None:
        self.config = config
        self.name = config.name
        self.timeout_s = config.timeout_s or service.server.score_timeout_s
        self._expose = service.server.expose_tracebacks
        self.queue = RewardQueue(config.name)
        self.replicas = [Replica(config, index) for index in range(config.num_replicas)]
        self.completed = 0
        self.failed_items = 0
        self.batches = 0
        self._max_queued = service.limits.max_queued_items
        self._on_change = on_change
        self._later: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------ intake

    def check_room(self, items: int) -> None:
        """Raise Overloaded when the queue cannot take *items* more."""
        if len(self.queue) + items > self._max_queued and self.queue.live() + items > self._max_queued:
            raise Overloaded(
                f"reward {self.name!r} has {self.queue.live()} items waiting; at most {self._max_queued} "
                "(limits.max_queued_items): try again later"
            )

    def submit(self, works: list[Work]) -> None:
        """Queue *works*; they are answered through `Work`."""
        if self.failure is not None:
            for work in works:
                self._refuse(work)
            return
        now = time.monotonic()
        for work in works:
            self.queue.put(work, now)
        self.pump()

    def _refuse(self, work: Work) -> None:
        work.fail(self.name, "RewardFailed", f"reward {self.name!r} could not be started; see GET /health")

    # ------------------------------------------------------------------ state

    @property
    def ready(self) -> bool:
        """At least one replica serves."""
        return any(replica.link is not None for replica in self.replicas)

    @property
    def failure(self) -> str | None:
        """Why the reward is given up, or None; a reward fails when all its replicas have."""
        reasons = [replica.reason for replica in self.replicas if replica.state == "failed"]
        return reasons[0] if len(reasons) == len(self.replicas) else None

    def set_state(self, index: int, message: Message) -> None:
        """A supervisor reports; see `workers.supervisor`."""
        replica = self.replicas[index]
        replica.update(message)
        if replica.state in ("failed", "restarting"):
            log.error("%s is %s: %s\n%s", replica.label, replica.state, replica.reason, replica.traceback or "")
        if self.failure is not None:
            for work in self.queue.drain():
                self._refuse(work)
        self._on_change(replica)

    def supervisor_lost(self, index: int, transport: asyncio.WriteTransport) -> None:
        """The connection to a supervisor ended."""
        if self.replicas[index].lost(transport):
            self._on_change(self.replicas[index])

    # ------------------------------------------------------------------ links to scorer processes

    def connected(self, index: int, link: ScorerLink) -> None:
        """The scorer process of replica *index* is ready for batches."""
        replica = self.replicas[index]
        if replica.link is not None:
            self.disconnected(index, replica.link)
        replica.link = link
        replica.settled = True
        self._on_change(replica)
        self.pump()

    def disconnected(self, index: int, link: ScorerLink) -> None:
        """The scorer process is gone: its batches go to another one, once."""
        replica = self.replicas[index]
        if replica.link is link:
            replica.link = None
        now = time.monotonic()
        for batch in link.take_batches():
            batch.cancel_watch()
            lost = [work for work in batch.works if self._survives(work, replica)]
            self.queue.put_back(lost, now)
            for work in batch.works:
                work.unhold()
        self._on_change(replica)
        self.pump()

    def _survives(self, work: Work, replica: Replica) -> bool:
        if self.name not in work.pending:
            return False
        deaths = work.deaths = work.deaths or {}
        deaths[self.name] = deaths.get(self.name, 0) + 1
        if deaths[self.name] < MOST_DEATHS:
            return True
        why = f": {without_paths(replica.reason)}" if replica.reason else ""
        work.fail(self.name, "ReplicaDied", f"the scorer process of {self.name!r} died twice with this item{why}")
        self.failed_items += 1
        return False

    # ------------------------------------------------------------------ dispatch

    def pump(self) -> None:
        """Give every free replica what waits."""
        while self.queue:
            link = self._free_link()
            if link is None:
                return
            if self._should_wait(link.max_batch_size):
                return
            works = self.queue.take(link.max_batch_size)
            if works:
                self._dispatch(link, works)

    def _free_link(self) -> ScorerLink | None:
        best: ScorerLink | None = None
        for replica in self.replicas:
            link = replica.link
            if link is not None and link.free_slots > 0 and (best is None or link.load < best.load):
                best = link
        if best is not None and best.load and self.queue.has_suspects:
            return None  # a suspect waits for a process of its own
        return best

    def _should_wait(self, full: int) -> bool:
        """With `max_wait_ms`, hold a batch of fewer than *full* items back until it is old enough."""
        wait_s = self.config.max_wait_ms / 1000.0
        if wait_s <= 0 or len(self.queue) >= full:
            return False
        left = (self.queue.oldest() or 0.0) + wait_s - time.monotonic()
        if left <= 0:
            return False
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(left, self._waited)
        return True

    def _waited(self) -> None:
        self._later = None
        self.pump()

    def _dispatch(self, link: ScorerLink, works: list[Work]) -> None:
        suspect = works[0].deaths is not None and self.name in works[0].deaths
        batch = Batch(works, self.config.hang_timeout_s, lambda: self._hung(link), alone=suspect)
        for work in works:
            work.hold()
        self.batches += 1
        link.send(batch)

    def _hung(self, link: ScorerLink) -> None:
        seconds = self.config.hang_timeout_s
        replica = self.replicas[link.replica]
        log.warning("%s: no answer for %g s, replacing the scorer process", replica.label, seconds)
        replica.kill(f"it did not answer within hang_timeout_s = {seconds:g} s")
        self.disconnected(link.replica, link)
        link.close()

    def answered(self, link: ScorerLink, message: Message) -> None:
        """A scorer process answers a batch."""
        batch = link.pop_batch(message["id"])
        if batch is None:
            return
        batch.cancel_watch()
        entries: list[dict[str, Any]] = message["items"]
        link.max_batch_size = max(1, int(message["limit"]))
        for work, entry in zip(batch.works, entries, strict=True):
            self._answer(work, entry)
        for work in batch.works:
            work.unhold()
        self.pump()

    def _answer(self, work: Work, entry: dict[str, Any]) -> None:
        if "s" in entry:
            bad = entry.get("n")
            error = None if bad is None else f"ValueError({not_finite(bad)!r})"
            work.score(self.name, entry["s"], error)
            self.completed += 1
            return
        kind, text = entry["e"]
        self.failed_items += 1
        trace = entry.get("tb", "")
        log.warning("request %s, reward %s failed: %s: %s\n%s", work.label, self.name, kind, text, trace)
        work.fail(self.name, kind, f"{text}\n{trace}" if self._expose else without_paths(text))


def not_finite(bad: dict[str, str]) -> str:
    """The sentence for sub-metrics that are NaN or infinite."""
    return "not finite: " + ", ".join(f"{name} = {value}" for name, value in bad.items())
