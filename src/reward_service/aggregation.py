"""From the rewards of one sample to one number; the gateway, the SDK and the integrations share it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

Method = Literal["weighted_sum", "mean", "min", "max"]
SubMetricReduce = Literal["first", "mean", "max"]


@dataclass(frozen=True)
class Aggregation:
    """How rewards become one number.

    method: ``weighted_sum`` is the weighted mean Σ w·s / Σ w (0.0 when Σ w ≤ 0); ``mean``, ``min`` and
        ``max`` ignore the weights.
    weights: factor per reward name; a name that is missing weighs 1.0.
    sub_metric_reduce: how a reward's sub-metrics become its score: the ``first`` in the order of the
        answer, their ``mean``, or their ``max``.

    Raises ValueError for an unknown word or a weight that is not a finite number.
    """

    method: Method = "weighted_sum"
    weights: Mapping[str, float] | None = None
    sub_metric_reduce: SubMetricReduce = "first"

    def __post_init__(self) -> None:
        _one_of("method", self.method, get_args(Method))
        _one_of("sub_metric_reduce", self.sub_metric_reduce, get_args(SubMetricReduce))
        if self.weights is None:
            return
        if not isinstance(self.weights, Mapping):
            raise ValueError(f"aggregation weights must map reward names to numbers, not {self.weights!r}")
        checked = {name: _finite(weight) for name, weight in self.weights.items()}
        for name, number in checked.items():
            if not isinstance(name, str) or number is None:
                raise ValueError(
                    f"aggregation weights map names to finite numbers, not {name!r} to {self.weights[name]!r}"
                )
        object.__setattr__(self, "weights", checked)

    @classmethod
    def from_mapping(cls, fields: Mapping[str, Any]) -> Aggregation:
        """Build from wire or YAML *fields*; raises ValueError that names an unknown field."""
        known = ("method", "weights", "sub_metric_reduce")
        if unknown := sorted(set(fields) - set(known)):
            raise ValueError(f"aggregation has no field {unknown[0]!r}; its fields are {', '.join(known)}")
        return cls(**fields)

    def to_mapping(self) -> dict[str, Any]:
        """The fields as they go over the wire."""
        fields: dict[str, Any] = {"method": self.method, "sub_metric_reduce": self.sub_metric_reduce}
        if self.weights is not None:
            fields["weights"] = dict(self.weights)
        return fields

    def aggregate(self, result: Mapping[str, Mapping[str, float | None]], required: Sequence[str]) -> float | None:
        """One number from the rewards in *required* that succeeded; a name given twice counts once.

        A reward fails when *result* lacks it, when it has no sub-metric, or when any of its sub-metrics
        is None, a bool, no number, or not finite. None when every reward failed (or the arithmetic leaves
        the range of floats): a trainer that wants 0.0 there has to decide so itself.
        """
        scores: dict[str, float] = {}
        for name in required:
            score = self.reduce(result.get(name))
            if score is not None:
                scores[name] = score
        if not scores:
            return None
        return _finite(self._combine(scores))

    def reduce(self, sub_metrics: Mapping[str, float | None] | None) -> float | None:
        """One reward's score from its sub-metrics, or None when the reward failed."""
        if not isinstance(sub_metrics, Mapping) or not sub_metrics:
            return None
        values: list[float] = []
        for value in sub_metrics.values():
            number = _finite(value)
            if number is None:
                return None
            values.append(number)
        if self.sub_metric_reduce == "first":
            return values[0]
        return max(values) if self.sub_metric_reduce == "max" else _finite(sum(values) / len(values))

    def _combine(self, scores: Mapping[str, float]) -> float:
        if self.method == "min":
            return min(scores.values())
        if self.method == "max":
            return max(scores.values())
        if self.method == "mean":
            return sum(scores.values()) / len(scores)
        weights = self.weights or {}
        total = sum(weights.get(name, 1.0) for name in scores)
        if total <= 0:
            return 0.0
        return sum(weights.get(name, 1.0) * score for name, score in scores.items()) / total


def _one_of(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"aggregation {field} {value!r} is not one of {', '.join(allowed)}")


def _finite(value: object) -> float | None:
    """*value* as a float when it is a finite number and no bool."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
