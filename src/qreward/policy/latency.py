"""The recent latencies of a key and their quantiles."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque

_FEWEST = 20
_MEAN_WEIGHT = 0.1  # of one sample in the moving mean


class LatencyWindow:
    """The last *size* samples, in seconds.

    The order is kept only while somebody asks for quantiles: `add` is an append until then, and again after *size*
    samples without a question.
    """

    __slots__ = ("_samples", "_sorted", "_unasked", "mean_s", "size")

    def __init__(self, size: int = 1000) -> None:
        self.size = size
        self.mean_s: float | None = None  # moving mean; None before the first sample
        self._samples: deque[float] = deque(maxlen=size)
        self._sorted: list[float] | None = None
        self._unasked = 0

    def add(self, latency_s: float) -> None:
        """One more sample; the oldest leaves when *size* are held."""
        mean = self.mean_s
        self.mean_s = latency_s if mean is None else mean + _MEAN_WEIGHT * (latency_s - mean)
        samples, ordered = self._samples, self._sorted
        if ordered is not None:
            self._unasked += 1
            if self._unasked > self.size:
                self._sorted = None
            else:
                if len(samples) == self.size:
                    del ordered[bisect_left(ordered, samples[0])]
                insort(ordered, latency_s)
        samples.append(latency_s)

    @property
    def count(self) -> int:
        """Samples held."""
        return len(self._samples)

    def quantile(self, q: float) -> float | None:
        """The smallest sample that at least a share *q* of the samples does not exceed; None below 20 samples."""
        count = len(self._samples)
        if count < _FEWEST:
            return None
        ordered = self._sorted
        if ordered is None:
            ordered = self._sorted = sorted(self._samples)
        self._unasked = 0
        # 0.07 × 100 is 7.000000000000001 in floats, and the rank is 7.
        return ordered[min(count, max(1, math.ceil(q * count - 1e-9))) - 1]
