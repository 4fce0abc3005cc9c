"""The queue of one reward: by priority, then by age; replicas take batches out of it."""

from __future__ import annotations

from collections import deque

from reward_service.gateway.work import Work

PRIORITIES = 10


class RewardQueue:
    """Works waiting for one reward. Answered and abandoned works leave without costing anything.

    A work whose batch died with its process waits among the `suspects`: those are tried one by one, so that
    the guilty one stands alone.
    """

    def __init__(self, reward: str) -> None:
        self._reward = reward
        self._lanes: tuple[deque[tuple[float, Work]], ...] = tuple(deque() for _ in range(PRIORITIES))
        self._suspects: deque[tuple[float, Work]] = deque()
        self._entries = 0

    def __len__(self) -> int:
        """Entries, including those that turn out to be answered when their turn comes."""
        return self._entries

    def put(self, work: Work, now: float) -> None:
        """Append *work* behind its equals."""
        self._lanes[work.priority].append((now, work))
        self._entries += 1

    def put_back(self, works: list[Work], now: float) -> None:
        """Return works whose process died with them, as suspects, ahead of everything that waits."""
        self._suspects.extendleft((now, work) for work in reversed(works))
        self._entries += len(works)

    def take(self, most: int) -> list[Work]:
        """Up to *most* live works, the most urgent first; a suspect comes alone."""
        batch: list[Work] = []
        while self._suspects and not batch:
            self._take_from(self._suspects, batch, 1)
        if batch:
            return batch
        for lane in self._lanes:
            if lane:
                self._take_from(lane, batch, most)
                if len(batch) == most:
                    break
        return batch

    def oldest(self) -> float | None:
        """When the oldest entry was put, or None."""
        heads = [lane[0][0] for lane in (self._suspects, *self._lanes) if lane]
        return min(heads, default=None)

    @property
    def has_suspects(self) -> bool:
        """Whether the next work has to be tried alone."""
        return bool(self._suspects)

    def live(self) -> int:
        """Entries that still wait for an answer; the others are forgotten, or a queue that nobody takes from grows."""
        for lane in (self._suspects, *self._lanes):
            waiting = [entry for entry in lane if self._reward in entry[1].pending]
            self._entries -= len(lane) - len(waiting)
            lane.clear()
            lane.extend(waiting)
        return self._entries

    def drain(self) -> list[Work]:
        """Remove and return everything."""
        works = [work for lane in (self._suspects, *self._lanes) for _, work in lane]
        for lane in (self._suspects, *self._lanes):
            lane.clear()
        self._entries = 0
        return works

    def _take_from(self, lane: deque[tuple[float, Work]], batch: list[Work], most: int) -> None:
        reward = self._reward
        while lane and len(batch) < most:
            work = lane.popleft()[1]
            self._entries -= 1
            if reward in work.pending:
                batch.append(work)
