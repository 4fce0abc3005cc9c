"""The unit of work: one item and the rewards it still waits for; and the HTTP request that waits for items."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from reward_service.errors import ItemError

Scores = dict[str, float | None]
# Errors that a second try may cure: their results are not remembered under an idempotency key.
TRANSIENT = frozenset({"TimeoutError", "ReplicaDied", "Unavailable", "Overloaded"})


def describe(kind: str, message: str) -> str:
    """An exception as clients see it: ``Class('message')``."""
    return f"{kind}({message!r})"


class Work:
    """One item. `pending` holds the rewards not answered yet; media is released once nobody can read it.

    A work that several requests wait for (equal idempotency keys) has several subscribers.
    """

    __slots__ = (
        "_release", "blob", "deaths", "errors", "fragment", "holds", "label", "on_done", "order", "pending", "priority",
        "results", "subscribers", "transient",
    )  # fmt: skip

    def __init__(self, rewards: Sequence[str], priority: int) -> None:
        self.pending: set[str] = set(rewards)
        # Answers keep the order of required_rewards, whichever comes first.
        self.order = tuple(dict.fromkeys(rewards))
        self.results: dict[str, Scores] = {}
        self.errors: dict[str, str] = {}
        self.priority = priority
        self.subscribers: list[Job] = []
        # For the log: request and position.
        self.label = ""
        # The item as JSON, for scorers on this node, and its encoded media for others.
        self.fragment = b""
        self.blob: RemoteForm | None = None
        self.deaths: dict[str, int] | None = None
        self.transient = False
        self.holds = 0
        self.on_done: Callable[[Work], None] | None = None
        self._release: Callable[[], None] | None = None

    def own(self, release: Callable[[], None]) -> None:
        """Call *release* once the item is answered and no scorer reads its media any more."""
        self._release = release
        self._settle()

    def hold(self) -> None:
        """A scorer starts to read the media."""
        self.holds += 1

    def unhold(self) -> None:
        """A scorer is done with the media."""
        self.holds -= 1
        self._settle()

    def score(self, reward: str, scores: Scores, error: str | None = None) -> None:
        """Answer *reward*; *error* names sub-metrics that are not finite."""
        if reward in self.pending:
            self.results[reward] = scores
            if error is not None:
                self.errors[reward] = error
            self._answered(reward)

    def fail(self, reward: str, kind: str, message: str) -> None:
        """Answer *reward* with an error."""
        if reward in self.pending:
            self.errors[reward] = describe(kind, message)
            self.transient |= kind in TRANSIENT
            self._answered(reward)

    def fail_all(self, error: ItemError) -> None:
        """Answer everything that is pending with *error*."""
        for reward in list(self.pending):
            self.fail(reward, type(error).__name__, str(error))

    def drop(self) -> None:
        """Nobody waits any more: answer nothing, reach no model."""
        self.pending.clear()
        self.transient = True
        self._done()

    def _answered(self, reward: str) -> None:
        self.pending.discard(reward)
        if not self.pending:
            self._done()
            return
        # A copy, because a request that has enough leaves.
        for job in list(self.subscribers):
            job.partly(self)

    def _done(self) -> None:
        if self.on_done is not None:
            self.on_done(self)
            self.on_done = None
        for job in self.subscribers:
            job.finished(self)
        self.subscribers = []
        self._settle()

    def _settle(self) -> None:
        if self._release is not None and not self.pending and not self.holds:
            release, self._release = self._release, None
            self.blob = None
            release()


class RemoteForm:
    """An item for scorers on other nodes: JSON whose media references point into the encoded files."""

    __slots__ = ("history", "metadata", "parts", "videos")

    def __init__(
        self,
        history: list[tuple[str, int | None]],
        videos: list[int | str | None] | None,
        metadata: bytes,
        parts: list[bytes],
    ) -> None:
        self.history = history
        self.videos = videos
        self.metadata = metadata
        self.parts = parts


class Job:
    """One HTTP request waiting for its works.

    `done` is set when every work is answered, or has been given up by this request.
    """

    __slots__ = ("_left", "done", "expired", "late", "works")

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.late: set[str] = set()
        # Works this request gave up on while others still wait for them, with its own view of the errors.
        self.expired: dict[Work, dict[str, str]] = {}
        self._left = 0

    def wait_for(self, work: Work) -> None:
        """Add *work*, which another request may have started."""
        self.works.append(work)
        if work.pending and self not in work.subscribers:
            work.subscribers.append(self)
            self._left += 1

    def sealed(self) -> None:
        """No more works come; a request without any open work is done."""
        if not self._left and not self.done.done():
            self.done.set_result(None)

    def finished(self, work: Work) -> None:
        """*work* has nothing pending for this request."""
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)

    def partly(self, work: Work) -> None:
        """*work* got one more answer; enough if this request has given up on the rest."""
        if self.late and work.pending <= self.late:
            self._leave(work)

    def expire(self, rewards: set[str], message: Callable[[str], str]) -> None:
        """The deadline of *rewards* has passed for this request."""
        self.late |= rewards
        for work in list(dict.fromkeys(self.works)):
            if self not in work.subscribers:
                continue
            if len(work.subscribers) == 1:
                for reward in work.pending & rewards:
                    work.fail(reward, "TimeoutError", message(reward))
            elif work.pending & rewards:
                self.expired[work] = {
                    reward: describe("TimeoutError", message(reward)) for reward in work.pending & self.late
                }
                if work.pending <= self.late:
                    self._leave(work)

    def errors_of(self, work: Work) -> dict[str, str]:
        """The errors of *work* for this request; a score that came after its deadline, yet in time, is none."""
        given_up = self.expired.get(work)
        if given_up is None:
            return work.errors
        late = {reward: error for reward, error in given_up.items() if reward not in work.results}
        return {**late, **work.errors}

    def abandon(self) -> None:
        """The client is gone: works that nobody else waits for are dropped."""
        for work in list(dict.fromkeys(self.works)):
            if self in work.subscribers:
                self._leave(work)

    def _leave(self, work: Work) -> None:
        work.subscribers.remove(self)
        if work.pending and not work.subscribers:
            work.drop()
        self.finished(work)
