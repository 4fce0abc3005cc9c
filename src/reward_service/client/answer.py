"""`ScoreResponse`: an answer of ``POST /score``, checked against what was asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from reward_service.aggregation import Aggregation
from reward_service.client.errors import InvalidAnswer
from reward_service.client.wire import PROTOCOL_VERSION, Item

Scores = dict[str, dict[str, float]]


@dataclass
class ScoreResponse:
    """Scores and failures; every list has one entry per request, in the order of the requests.

    results: ``{reward: {sub_metric: float}}``; a value that is not finite is NaN, and its reward is in
        `errors` too.
    errors: ``{reward: message}`` of what failed; a required reward is in `results`, in `errors`, or in both.
    identities: the identity fields as the server echoed them, or None where it does not echo.
    aggregated: one number per request when the call asked for an aggregation; None where all rewards failed.
    """

    results: list[Scores]
    errors: list[dict[str, str]]
    identities: list[dict[str, Any]] | None = None
    protocol_version: str | None = None
    aggregated: list[float | None] | None = None

    @property
    def failures(self) -> int:
        """How many rewards failed, over all requests."""
        return sum(map(len, self.errors))

    def summary(self, most: int = 3) -> str:
        """One sentence with the counts and the first *most* messages."""
        per_reward: dict[str, int] = {}
        for errors in self.errors:
            for name in errors:
                per_reward[name] = per_reward.get(name, 0) + 1
        counts = ", ".join(f"{name} {count}" for name, count in per_reward.items())
        messages = (
            f"[{index}] {name}: {message}"
            for index, errors in enumerate(self.errors)
            for name, message in errors.items()
        )
        shown = "; ".join(islice(messages, most))
        rest = self.failures - most
        more = f"; and {rest} more (score_detailed has all)" if rest > 0 else ""
        failed = sum(map(bool, self.errors))
        return f"{failed} of {len(self.errors)} items have failed rewards ({counts}): {shown}{more}"

    def part(self, start: int, stop: int) -> ScoreResponse:
        """The answer to the requests *start* to *stop* alone."""
        return ScoreResponse(
            self.results[start:stop],
            self.errors[start:stop],
            None if self.identities is None else self.identities[start:stop],
            self.protocol_version,
            None if self.aggregated is None else self.aggregated[start:stop],
        )


def joined(parts: Sequence[ScoreResponse]) -> ScoreResponse:
    """One answer from those of consecutive requests; what one part lacks, the whole lacks."""
    if len(parts) == 1:
        return parts[0]
    whole = ScoreResponse([], [], [], parts[0].protocol_version if parts else None, [])
    for part in parts:
        whole.results += part.results
        whole.errors += part.errors
        whole.identities = _extended(whole.identities, part.identities)
        whole.aggregated = _extended(whole.aggregated, part.aggregated)
    return whole


def _extended(whole: list[Any] | None, part: list[Any] | None) -> list[Any] | None:
    return None if whole is None or part is None else whole + part


def read_answer(payload: object, items: Sequence[Item]) -> ScoreResponse:
    """Check *payload* as the answer to *items*; raises InvalidAnswer."""
    if not isinstance(payload, Mapping):
        raise InvalidAnswer(f"the answer is a {type(payload).__name__}, not an object; is this a reward service?")
    version = payload.get("protocol_version")
    if version not in (None, PROTOCOL_VERSION):
        raise InvalidAnswer(f"the server answers in protocol_version {version!r}; this client speaks '1'")
    results = _rows(payload, "results", len(items))
    if results is None:
        raise InvalidAnswer("the answer has no results; is this a reward service?")
    errors = _rows(payload, "errors", len(items)) or [{}] * len(items)
    identities = _rows(payload, "identities", len(items))
    answer = ScoreResponse([], [], identities, version)
    for position, item in enumerate(items):
        if identities is not None:
            _check_identity(identities[position], item)
        scores, failed = _read_item(results[position], errors[position], item.rewards)
        answer.results.append(scores)
        answer.errors.append(failed)
    answer.aggregated = _aggregated(payload.get("aggregated"), len(items))
    return answer


def fill_aggregated(answer: ScoreResponse, items: Sequence[Item], aggregation: Aggregation | None) -> None:
    """Aggregate here what an older server left out; drop what nobody asked for."""
    if aggregation is None:
        answer.aggregated = None
    elif answer.aggregated is None:
        answer.aggregated = [
            aggregation.aggregate(scores, item.rewards) for scores, item in zip(answer.results, items, strict=True)
        ]


def _rows(payload: Mapping[str, Any], field: str, count: int) -> list[Any] | None:
    rows = payload.get(field)
    if rows is None:
        return None
    if not isinstance(rows, list) or any(not isinstance(row, dict) for row in rows):
        raise InvalidAnswer(f"the answer's {field} is not a list of objects")
    if len(rows) != count:
        raise InvalidAnswer(f"the answer has {len(rows)} {field} for {count} requests")
    return rows


def _aggregated(values: object, count: int) -> list[float | None] | None:
    if not isinstance(values, list):
        return None
    if len(values) != count:
        raise InvalidAnswer(f"the answer has {len(values)} aggregated for {count} requests")
    return [_number(value) for value in values]


def _check_identity(echo: Mapping[str, Any], item: Item) -> None:
    for name, sent in item.identity.items():
        got = echo.get(name)
        if got is not None and got != sent:
            raise InvalidAnswer(f"item {item.index} was sent with {name} {sent!r} but answered with {got!r}: mixed up")


def _read_item(
    result: Mapping[str, Any], errors: Mapping[str, Any], rewards: Sequence[str]
) -> tuple[Scores, dict[str, str]]:
    scores: Scores = {}
    failed = {name: str(message) for name, message in errors.items()}
    for reward, sub_metrics in result.items():
        if not isinstance(sub_metrics, Mapping):
            raise InvalidAnswer(f"the answer's result of {reward!r} is not an object")
        numbers = {name: _number(value) for name, value in sub_metrics.items()}
        bad = [name for name, number in numbers.items() if number is None]
        if bad:
            failed.setdefault(reward, f"not a finite number: {', '.join(bad)}")
        scores[reward] = {name: math.nan if number is None else number for name, number in numbers.items()}
    for reward in rewards:
        if reward not in scores and reward not in failed:
            failed[reward] = "missing from the answer without an error"
    return scores, failed


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None
