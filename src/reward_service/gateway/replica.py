"""The gateway's view of one replica: what its supervisor reports, and the link to its scorer process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from reward_service.config import RewardConfig
from reward_service.gateway.work import Work
from reward_service.workers.protocol import Message, pack

if TYPE_CHECKING:
    from reward_service.gateway.encode import Encoder


class Batch:
    """Works that one scorer process holds, with the watch that notices when it hangs."""

    __slots__ = ("_watch", "alone", "works")

    def __init__(
        self, works: list[Work], hang_timeout_s: float | None, on_hang: Callable[[], None], *, alone: bool = False
    ) -> None:
        self.works = works
        # Nothing else may be in the process, because this batch may kill it.
        self.alone = alone
        self._watch: asyncio.TimerHandle | None = None
        if hang_timeout_s is not None:
            self._watch = asyncio.get_running_loop().call_later(hang_timeout_s, on_hang)

    def cancel_watch(self) -> None:
        """The batch was answered, or is lost."""
        if self._watch is not None:
            self._watch.cancel()


class ScorerLink:
    """The data connection to one ready scorer process."""

    def __init__(self, hello: Message, transport: asyncio.WriteTransport, encoder: Encoder) -> None:
        self.replica = int(hello["replica"])
        # Falls when the process runs out of memory.
        self.max_batch_size = max(1, int(hello["max_batch_size"]))
        self.slots = max(1, int(hello["slots"]))
        self.shares_memory = encoder.shares_memory
        self._encoder = encoder
        self._transport = transport
        self._batches: dict[int, Batch] = {}
        self._next_id = 0

    @property
    def free_slots(self) -> int:
        """Batches the process can take right now."""
        if any(batch.alone for batch in self._batches.values()):
            return 0
        return self.slots - len(self._batches)

    @property
    def load(self) -> float:
        """Share of the slots in use."""
        return len(self._batches) / self.slots

    def send(self, batch: Batch) -> None:
        """Hand *batch* to the process."""
        self._next_id += 1
        self._batches[self._next_id] = batch
        self._transport.write(self._encoder.batch(self._next_id, batch.works))

    def pop_batch(self, batch_id: int) -> Batch | None:
        """The batch that is being answered; None for one that was given up."""
        return self._batches.pop(batch_id, None)

    def take_batches(self) -> list[Batch]:
        """Every batch in flight, which is no longer this link's."""
        batches = list(self._batches.values())
        self._batches.clear()
        return batches

    def close(self) -> None:
        """Drop the connection."""
        self._transport.close()


class Replica:
    """One replica: `state` is one of pending, environment, starting, importing, loading, warming up, ready,
    restarting, failed, or away (its supervisor is gone).
    """

    def __init__(self, config: RewardConfig, index: int) -> None:
        self.index = index
        self.label = config.name if config.num_replicas == 1 else f"{config.name}#{index}"
        self.state = "pending"
        self.detail: str | None = "waiting for a place in the cluster"
        self.reason: str | None = None
        self.traceback: str | None = None
        self.pid: int | None = None
        self.restarts = 0
        self.since = time.monotonic()
        # It was ready, or has failed: it is no longer starting for the first time.
        self.settled = False
        self.link: ScorerLink | None = None
        self._control: asyncio.WriteTransport | None = None

    @property
    def reported(self) -> bool:
        """Whether its supervisor has ever been heard of."""
        return self._control is not None or self.state != "pending"

    def controlled(self, transport: asyncio.WriteTransport) -> None:
        """Its supervisor is connected."""
        self._control = transport
        self.detail = None

    def lost(self, transport: asyncio.WriteTransport) -> bool:
        """A connection to its supervisor ended; whether it was the current one."""
        if self._control is not transport:
            return False
        self._control = None
        self.update({"state": "away", "detail": "its supervisor is gone; Ray starts it again"})
        return True

    @property
    def has_supervisor(self) -> bool:
        """Whether its supervisor is connected now."""
        return self._control is not None

    def update(self, message: Message) -> None:
        """Take over what the supervisor reports."""
        state = str(message["state"])
        if state != self.state:
            self.since = time.monotonic()
            self.restarts += state == "restarting"
        self.state = state
        self.settled |= state == "failed"
        self.detail = message.get("detail")
        self.pid = message.get("pid", self.pid)
        if state in ("failed", "restarting"):
            self.reason = message.get("reason")
            self.traceback = message.get("traceback")
        elif state == "ready":
            self.reason = self.traceback = None

    def fail(self, reason: str) -> None:
        """Give the replica up without a report (it got no place, say)."""
        self.update({"state": "failed", "reason": reason})

    def kill(self, reason: str) -> None:
        """Have the supervisor kill the scorer process."""
        if self._control is not None:
            self._control.write(pack({"t": "kill", "reason": reason}))
