"""Which of several endpoints takes the next call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence


class RoundRobinSelector:
    """One after the other, skipping those that are out of service."""

    def __init__(self) -> None:
        self._next = 0

    def select(self, keys: Sequence[str], healthy_keys: Collection[str]) -> str | None:
        """The next healthy key, None when there is none."""
        for step in range(len(keys)):
            index = (self._next + step) % len(keys)
            if keys[index] in healthy_keys:
                self._next = (index + 1) % len(keys)
                return keys[index]
        return None


class WeightedRoundRobinSelector:
    """By weight and smoothly: weights of 3 and 1 give a a b a."""

    def __init__(self) -> None:
        self._current: dict[str, float] = {}

    def update_weights(self, weights: Mapping[str, float]) -> None:
        """Forget the keys that are gone and start the new ones."""
        self._current = {key: self._current.get(key, 0.0) for key in weights}

    def select(self, keys: Sequence[str], healthy_keys: Collection[str], weights: Mapping[str, float]) -> str | None:
        """The healthy key with a weight that is most behind its share, None when there is none."""
        eligible = [key for key in keys if key in healthy_keys and key in weights]
        if not eligible:
            return None
        total = 0.0
        for key in eligible:
            weight = max(1, weights[key])
            self._current[key] = self._current.get(key, 0.0) + weight
            total += weight
        chosen = max(eligible, key=lambda key: self._current[key])
        self._current[chosen] -= total
        return chosen


class LeastConnectionsSelector:
    """The one with the fewest calls in flight and waiting; equals take turns."""

    def __init__(self) -> None:
        self._turn = RoundRobinSelector()

    def select(self, keys: Sequence[str], healthy_keys: Collection[str], busy: Callable[[str], float]) -> str | None:
        """*busy(key)* is the number of calls that key has to deal with."""
        load = {key: busy(key) for key in keys if key in healthy_keys}
        if not load:
            return None
        least = min(load.values())
        return self._turn.select(keys, [key for key, calls in load.items() if calls <= least])


def power_of_two(keys: Sequence[str], cost: Callable[[str], float], dice: tuple[float, float]) -> str | None:
    """The cheaper of two drawn by *dice* (two uniform numbers in [0, 1)): near the best, without a herd.

    *cost* is the expected time of one more call, such as latency × (calls in flight + 1).
    """
    if not keys:
        return None
    first = int(dice[0] * len(keys))
    second = int(dice[1] * (len(keys) - 1)) if len(keys) > 1 else 0
    second += len(keys) > 1 and second >= first
    a, b = keys[first], keys[second]
    return a if cost(a) <= cost(b) else b
