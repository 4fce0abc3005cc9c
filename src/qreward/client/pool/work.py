"""What a pool is asked for, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["chat", "embeddings", "call", "score"]

_DEFAULT_ANSWER_TOKENS = 256


@dataclass(slots=True, eq=False)
class Work:
    """One task: *name* is the model, the tag of a callable, or the reward service's group; *payload* its input."""

    kind: Kind
    name: str
    payload: Any
    arguments: dict[str, Any] = field(default_factory=dict)
    idempotent: bool = True

    @property
    def tokens(self) -> float:
        """Estimated tokens, prompt and answer: four characters each, and `max_tokens` or 256."""
        if self.kind not in ("chat", "embeddings"):
            return 0.0
        answer = 0
        if self.kind == "chat":
            asked = self.arguments.get("max_completion_tokens") or self.arguments.get("max_tokens")
            answer = int(asked or _DEFAULT_ANSWER_TOKENS)
        return _characters(self.payload) / 4 + answer


@dataclass(slots=True, eq=False)
class Done:
    """The value, and the tokens it really took where the source says so."""

    value: Any
    tokens: float | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """The answer of a reward service: `results` and `errors`, one dict per request, in order."""

    results: list[dict[str, dict[str, float | None]]]
    errors: list[dict[str, str]]


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        # Pictures are counted by the server in tokens of its own; their base64 is no text.
        return sum(_characters(v) for k, v in value.items() if k not in ("image_url", "video_url", "input_audio"))
    if isinstance(value, list | tuple):
        return sum(map(_characters, value))
    return 0
