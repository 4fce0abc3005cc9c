"""`ComputePool`: sources of different kinds as one, by priority, deadline, speed, load, quota and price."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from qreward.client.batch import BatchCalls
from qreward.client.pool.choice import Task, fresh
from qreward.client.pool.dispatch import Dispatcher, Lease
from qreward.client.pool.publish import Publisher
from qreward.client.pool.sources import Source, close_all
from qreward.client.pool.state import NEVER
from qreward.client.pool.work import Scores, Work
from qreward.errors import ConfigError, DeadlineExceeded, NoHealthySource
from qreward.policy.backoff import Backoff
from qreward.policy.classify import Kind, Verdict, classify
from qreward.policy.health import hang_patience
from qreward.runtime import clock, portal
from qreward.runtime.watch import PASS_THROUGH

T = TypeVar("T")

_BACKOFF = Backoff(base_s=0.1, max_s=5.0)
_LONGEST_PAUSE_S = 60.0
_OVERLOAD_PAUSE_S = 0.25  # of a source that pushed back without saying for how long
_LOOK_S, _LOOK_AGAIN_S = 1.0, 5.0  # at a source that may hang: first, and at the latest again
_SOON_S = 0.001  # clocks and timers differ by this much
_LONGER = 4.0
_KEY_REFUSED = (401, 402)
_OF_ONE_SOURCE = (401, 402, 403, 404)  # its key, its account, its models: another may do better


class ComputePool(BatchCalls):
    """Unites *sources* and gives each task to one of them.

    A task is repeated, at another source where there is one, up to *max_attempts* times, by type of error. Tasks
    without a deadline use only the cheapest sources that can do them; a dearer one is used when `deadline_s` needs
    it, or with *spill_on_outage* while no cheaper one is in service. When nothing is in service a task waits for the
    first source to return. Any number of event loops and threads may use one pool.
    """

    def __init__(self, sources: Sequence[Source] = (), *, max_attempts: int = 6, spill_on_outage: bool = False) -> None:
        self._sources: list[Source] = []
        self._max_attempts = max_attempts
        self._dispatcher = Dispatcher(spill_on_outage)
        self._publisher: Publisher | None = None
        for source in sources:
            self.add(source)

    @classmethod
    def from_yaml(cls, path: str | Path) -> Self:
        """A pool from a file; ConfigError with file and line for everything that is wrong with it."""
        from qreward.client.pool.config import load

        settings, sources = load(Path(path))
        return cls(sources, **settings)

    def add(self, source: Source) -> Self:
        """Add *source*; ConfigError when its name is taken."""
        if any(known.name == source.name for known in self._sources):
            raise ConfigError(f"there are two sources named {source.name!r}; names must differ")
        self._sources.append(source)
        return self

    # -- tasks -------------------------------------------------------------------------------------------------------

    async def chat_completion(
        self,
        messages: Any,
        model: str,
        *,
        priority: int = 5,
        deadline_s: float | None = None,
        idempotent: bool = True,
        **openai_arguments: Any,
    ) -> Any:
        """The text of the first choice. priority: 0 first to 9 last. deadline_s: wall clock, waiting included.

        idempotent=False: repeated only when the source certainly did not process it.
        """
        return await self._run(Work("chat", model, messages, openai_arguments, idempotent), priority, deadline_s)

    @property
    def _room(self) -> int:
        # Twice as many as run: the next ones wait where priorities and prices are weighed.
        return 2 * sum(source.state.max_concurrent for source in self._sources) or 1

    async def embeddings(
        self,
        sentences: Any,
        model: str,
        *,
        priority: int = 5,
        deadline_s: float | None = None,
        **openai_arguments: Any,
    ) -> list[Any]:
        """A list of `openai.types.Embedding`."""
        value: list[Any] = await self._run(Work("embeddings", model, sentences, openai_arguments), priority, deadline_s)
        return value

    async def call(
        self,
        payload: Any,
        *,
        tag: str = "default",
        priority: int = 5,
        deadline_s: float | None = None,
        idempotent: bool = True,
        **arguments: Any,
    ) -> Any:
        """What a CallableSource with *tag* makes of *payload* (and *arguments*)."""
        return await self._run(Work("call", tag, payload, arguments, idempotent), priority, deadline_s)

    async def score(
        self, requests: Sequence[dict[str, Any]], *, priority: int = 5, deadline_s: float | None = None
    ) -> Scores:
        """The results and errors of a reward service, one dict per request, in order."""
        rewards = sorted({name for request in requests for name in request.get("required_rewards", ())})
        scores: Scores = await self._run(Work("score", ",".join(rewards), list(requests)), priority, deadline_s)
        return scores

    async def stream_chat_completion(
        self,
        messages: Any,
        model: str,
        *,
        priority: int = 5,
        deadline_s: float | None = None,
        **openai_arguments: Any,
    ) -> AsyncGenerator[str, None]:
        """The text piece by piece; moves to another source until the first piece is there."""
        task = self._task(Work("chat", model, messages, openai_arguments), priority, deadline_s)
        failures = 0
        while True:
            lease = await self._bounded(task, self._dispatcher.lease(task))
            left_s = None if task.deadline is None else max(0.001, task.deadline - clock.monotonic())
            pieces = lease.source.stream(task.work, left_s)
            begun = False
            try:
                piece = await self._watched(task, lease, anext(pieces, None))
                while piece is not None:
                    begun = True
                    yield piece
                    piece = await anext(pieces, None)
                self._dispatcher.answered(lease, None)
                return
            except PASS_THROUGH:
                self._dispatcher.dropped(lease)
                raise
            except Exception as exc:
                failures += 1
                wait = self._settle_failure(task, lease, exc, failures)
                if wait is None or begun:
                    raise
            finally:
                await pieces.aclose()
            await self._bounded(task, asyncio.sleep(wait))

    # -- one task ----------------------------------------------------------------------------------------------------

    def _task(self, work: Work, priority: int, deadline_s: float | None) -> Task:
        candidates = [source for source in self._sources if source.serves(work)]
        if not candidates:
            names = ", ".join(f"{s.name} ({s.kind})" for s in self._sources) or "none"
            raise NoHealthySource(f"No source serves {work.kind} {work.name!r}; there are: {names}.")
        now = clock.monotonic()
        return Task(work, priority, now, None if deadline_s is None else now + deadline_s, candidates)

    async def _run(self, work: Work, priority: int, deadline_s: float | None) -> Any:
        task = self._task(work, priority, deadline_s)
        return await self._bounded(task, self._attempts(task))

    async def _bounded(self, task: Task, pending: Awaitable[T]) -> T:
        if task.deadline is None:
            return await pending
        try:
            async with asyncio.timeout(max(0.0, task.deadline - clock.monotonic())) as scope:
                return await pending
        except TimeoutError as exc:
            if scope.expired():
                raise DeadlineExceeded(self._too_late(task)) from exc
            raise

    def _too_late(self, task: Task) -> str:
        now = clock.monotonic()
        given = 0.0 if task.deadline is None else task.deadline - task.since
        states = ", ".join(_state(source, now) for source in task.candidates)
        return f"no answer to {task.work.kind} {task.work.name!r} within {given:g} s; sources: {states}"

    async def _attempts(self, task: Task) -> Any:
        failures = 0
        while True:
            lease = await self._dispatcher.lease(task)
            try:
                done = await self._watched(task, lease, lease.source.execute(task.work))
            except PASS_THROUGH:
                self._dispatcher.dropped(lease)
                raise
            except BaseException as exc:
                failures += 1
                wait = self._settle_failure(task, lease, exc, failures)
                if wait is None:
                    raise
                await asyncio.sleep(wait)
                continue
            self._dispatcher.answered(lease, done.tokens)
            return done.value

    def _settle_failure(self, task: Task, lease: Lease, exc: BaseException, failures: int) -> float | None:
        """Book the failure; seconds before the task is queued again, None when *exc* is final."""
        if isinstance(exc, _Hung):
            task.avoid.add(lease.source)
            task.hung += 1
            self._dispatcher.dropped(lease, hung=True)
            return 0.0 if failures < self._max_attempts else None
        verdict = classify(exc, epoch=time.time())
        task.avoid.add(lease.source)
        cost = lease.source.cost(task.work)
        others = any(s.cost(task.work) <= cost for s in fresh(task, task.candidates, clock.monotonic()))
        blame = lease.source.at_fault(exc, verdict) or (others and verdict.status in _KEY_REFUSED)
        self._dispatcher.failed(lease, verdict, blame, _pause(verdict))
        if failures >= self._max_attempts or not (task.work.idempotent or verdict.unsent):
            return None
        if others and verdict.status in _OF_ONE_SOURCE:
            return 0.0
        if not verdict.retryable:
            return None
        if others:
            return 0.0
        # Nobody else may be asked: again, after a while.
        return _BACKOFF.wait(failures, random.random(), 1.0)  # noqa: S311

    async def _watched(self, task: Task, lease: Lease, pending: Awaitable[T]) -> T:
        """*pending*; `_Hung` when its source has stopped answering while others do not."""
        if len(task.candidates) < 2 or not task.work.idempotent:
            return await pending
        loop = asyncio.get_running_loop()
        scope = asyncio.timeout(None)
        timers: list[asyncio.TimerHandle] = []

        def look() -> None:
            patience = self._patience(task)
            # Silence counts from the source's last answer, to whichever task: it may stop in the middle of a batch.
            left = patience - (clock.monotonic() - max(lease.source.state.last_answer, lease.started))
            if left > _SOON_S:
                timers[:] = [loop.call_later(min(left, _LOOK_AGAIN_S), look)]
            elif _others_answer(task, lease, patience):
                scope.reschedule(loop.time())
            else:
                timers[:] = [loop.call_later(min(patience, _LOOK_AGAIN_S), look)]

        try:
            async with scope:
                timers.append(loop.call_later(_LOOK_S, look))
                return await pending
        except TimeoutError:
            if scope.expired():
                silent = clock.monotonic() - max(lease.source.state.last_answer, lease.started)
                raise _Hung(f"source {lease.source.name!r} has answered nothing for {silent:.1f} s") from None
            raise
        finally:
            timers[0].cancel()

    def _patience(self, task: Task) -> float:
        """Seconds of silence after which a source hangs; infinity while no answer of any source is known."""
        states = [source.state for source in task.candidates]
        patience = hang_patience((state.latencies.quantile(0.95), state.mean_s) for state in states)
        # A task that was taken for stuck before may just be long.
        return NEVER if patience is None else patience * _LONGER**task.hung

    # -- state and life ----------------------------------------------------------------------------------------------

    def run(self, method: Callable[..., Coroutine[Any, Any, T]], *args: Any, **kwargs: Any) -> T:
        """``pool.run(pool.chat_completion, messages, "judge")``: a task from synchronous code."""
        return portal.run(lambda: method(*args, **kwargs))

    def snapshot(self) -> dict[str, Any]:
        """The state of every source and of the queue, for people and dashboards; no keys, no payloads."""
        now = clock.monotonic()
        return {
            "time": time.time(),
            "waiting": {str(priority): count for priority, count in self._dispatcher.waiting_by_priority().items()},
            "sources": [
                {
                    "name": source.name,
                    "kind": source.kind,
                    "price": source.price,
                    "price_per_call": source.price_per_call,
                    **source.state.snapshot(now),
                }
                for source in self._sources
            ],
        }

    def serve_snapshot(self, path: str | Path, every_s: float = 0.5) -> None:
        """Write the snapshot to the file *path* every *every_s* seconds, for ``python -m qreward.top PATH``."""
        if self._publisher is not None:
            self._publisher.stop()
        self._publisher = Publisher(Path(path), self.snapshot, every_s)

    async def aclose(self) -> None:
        """Close every source; closing again does nothing."""
        if self._publisher is not None:
            self._publisher.stop()
            self._publisher = None
        await close_all(self._sources)

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Hung(TimeoutError):
    """The source of an attempt has stopped answering."""


def _others_answer(task: Task, lease: Lease, patience: float) -> bool:
    """Whether some other source does, or has nothing to answer: the task itself is not what takes so long."""
    now = clock.monotonic()
    return any(
        source is not lease.source
        and source.state.status(now) == "healthy"
        and (source.state.inflight == 0 or now - source.state.last_answer < patience)
        for source in task.candidates
    )


def _state(source: Source, now: float) -> str:
    back = source.state.returns_in(now)
    return f"{source.name} {source.state.status(now)}" + (f" (back in {back:.1f} s)" if back > 0.0 else "")


def _pause(verdict: Verdict) -> float:
    if verdict.kind is not Kind.OVERLOAD:
        return 0.0
    asked = _OVERLOAD_PAUSE_S if verdict.retry_after_s is None else verdict.retry_after_s
    return min(_LONGEST_PAUSE_S, asked)
