"""Tasks wait in one fair queue; sources with room take them."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from dataclasses import dataclass

from qreward.client.pool.choice import Task, choose
from qreward.client.pool.sources import Source
from qreward.client.pool.state import NEVER
from qreward.policy.classify import Verdict
from qreward.policy.fair import FairEntry, FairQueue
from qreward.runtime import clock
from qreward.runtime.fork import renew_after_fork
from qreward.runtime.wake import Alarm, call_on


@dataclass(slots=True, eq=False)
class Lease:
    """One attempt of a task at *source*; ends with exactly one of `answered`, `failed`, `dropped`."""

    source: Source
    started: float
    tokens: float
    probe: bool  # whether it was let in to see if the source is back

    def speaks(self, now: float) -> bool:
        """Whether its failure says something new: not when the source is out already and this is not the probe."""
        return self.probe or self.source.state.health.state(now) == "healthy"


@dataclass(slots=True, eq=False)
class _Waiting:
    task: Task
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Lease]


class Dispatcher:
    """Any thread and any event loop may use it."""

    def __init__(self, spill_on_outage: bool) -> None:
        self._spill_on_outage = spill_on_outage
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child nobody waits; what the sources know, their owner renews."""
        self._lock = threading.Lock()
        self._queue: FairQueue[_Waiting] = FairQueue()
        self._urgent: Counter[tuple[str, str]] = Counter()  # waiting tasks with a deadline, by kind and name of work
        self._alarm = Alarm(self._ring)

    async def lease(self, task: Task) -> Lease:
        """Wait for the turn of *task* and for a source that takes it."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(task, loop, loop.create_future())
        with self._lock:
            # A task that comes back after a failure keeps its age.
            entry = self._queue.put(waiting, task.priority, task.since, task.deadline, task.group)
            if task.deadline is not None:
                self._urgent[task.what] += 1
            grants = self._pump(clock.monotonic())
        self._deliver(grants)
        try:
            return await waiting.future
        except asyncio.CancelledError:
            self._leave(waiting, entry)
            raise

    def _leave(self, waiting: _Waiting, entry: FairEntry[_Waiting]) -> None:
        if waiting.future.done() and not waiting.future.cancelled():
            self.dropped(waiting.future.result())
            return
        with self._lock:
            if not entry.gone:
                self._queue.remove(entry)
                self._left(waiting.task)
            grants = self._pump(clock.monotonic())
        self._deliver(grants)

    def _left(self, task: Task) -> None:
        if task.deadline is not None:
            self._urgent[task.what] -= 1
            if not self._urgent[task.what]:
                del self._urgent[task.what]

    # -- the ends of a lease -----------------------------------------------------------------------------------------

    def answered(self, lease: Lease, used_tokens: float | None) -> None:
        """The source answered; *used_tokens* where it says how many it took."""
        with self._lock:
            now = clock.monotonic()
            source = lease.source
            source.state.answered(now, now - lease.started, lease.tokens, used_tokens)
            tokens = lease.tokens if used_tokens is None else used_tokens
            source.state.spend += source.price_per_call + source.price * tokens / 1e6
            grants = self._pump(now)
        self._deliver(grants)

    def failed(self, lease: Lease, verdict: Verdict, blame: bool, pause_s: float) -> None:
        """The attempt failed; *blame*: against the source's health. It is not asked again for *pause_s* seconds."""
        with self._lock:
            now = clock.monotonic()
            state = lease.source.state
            state.released(now, lease.tokens)
            state.failures += 1
            if verdict.status is not None:
                state.last_answer = now
            if blame:
                if lease.speaks(now):
                    state.health.failed(now, refused=verdict.unsent)
            else:
                state.health.answered(now)
            if pause_s > 0.0:
                state.pause(now, pause_s)
            grants = self._pump(now)
        self._deliver(grants)

    def dropped(self, lease: Lease, hung: bool = False) -> None:
        """The attempt was cancelled; *hung*: because the source does not answer any more."""
        with self._lock:
            now = clock.monotonic()
            state = lease.source.state
            state.released(now, lease.tokens)
            if hung:
                state.failures += 1
                if lease.speaks(now):
                    state.health.hang(now)
            elif lease.probe:
                state.health.released()
            grants = self._pump(now)
        self._deliver(grants)

    # -- waking ------------------------------------------------------------------------------------------------------

    def _pump(self, now: float) -> list[tuple[_Waiting, Lease]]:
        grants: list[tuple[_Waiting, Lease]] = []
        while len(self._queue) and (served := self._serve_one(now)) is not None:
            grants.append(served)
        return grants

    def _serve_one(self, now: float) -> tuple[_Waiting, Lease] | None:
        """Serve the first head that a source takes; else wake up when the first one may."""
        soonest = NEVER
        sleeper: FairEntry[_Waiting] | None = None
        for entry in self._queue.heads():
            waiting = entry.item
            choice = choose(waiting.task, now, self._urgent[waiting.task.what], self._spill_on_outage)
            if choice.source is not None:
                self._queue.take(entry)
                self._left(waiting.task)
                return waiting, self._start(waiting.task, choice.source, now)
            if choice.wait < soonest:
                soonest, sleeper = choice.wait, entry
        if sleeper is not None and not self._alarm.set(sleeper.item.loop, soonest):
            self._queue.remove(sleeper)  # its loop is closed: nobody waits there any more
            self._left(sleeper.item.task)
            return self._serve_one(now)
        return None

    @staticmethod
    def _start(task: Task, source: Source, now: float) -> Lease:
        tokens = task.work.tokens
        probe = source.state.health.state(now) != "healthy"
        source.state.health.admits(now)  # takes the slot of the probe where it is one
        source.state.started(now, tokens)
        return Lease(source, now, tokens, probe)

    def _ring(self) -> None:
        with self._lock:
            grants = self._pump(clock.monotonic())
        self._deliver(grants)

    def _deliver(self, grants: list[tuple[_Waiting, Lease]]) -> None:
        for waiting, lease in grants:
            if not call_on(waiting.loop, self._hand_over, waiting, lease):
                self.dropped(lease)  # its loop is closed

    def _hand_over(self, waiting: _Waiting, lease: Lease) -> None:
        if waiting.future.done():
            self.dropped(lease)
        else:
            waiting.future.set_result(lease)

    # -- state -------------------------------------------------------------------------------------------------------

    def waiting_by_priority(self) -> dict[int, int]:
        """Tasks in the queues."""
        with self._lock:
            counts = Counter(entry.priority for entry in self._queue)
        return dict(sorted(counts.items()))
