"""The wire contract of ``POST /score``: pydantic models of request and answer.

Field names and defaults are those of the existing service; `aggregation`, `priority`, `deadline_s`, and
the raw `image`/`video` bytes of msgpack bodies are additions that are absent unless sent.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PROTOCOL_VERSION = "1"
# Echoed per request, so that a client can match answers to what it sent.
IDENTITY_FIELDS = (
    "request_id", "sample_id", "group_id", "source_rank", "policy_version", "scorer_version", "idempotency_key",
)  # fmt: skip
# What every JSON and msgpack encoder can write.
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True, ser_json_bytes="base64")


class Turn(_Request):
    """One turn of a history: a text with an image, a video, or both."""

    text: str = Field(description="Prompt or instruction.")
    image_b64: str | None = Field(None, description="Encoded image file as base64 or `data:` URL.")
    video_b64: str | None = Field(None, description="Encoded video file as base64 or `data:` URL.")
    video_path: str | None = Field(None, description="Video file on the server, below a configured root.")
    image_ipc: str | None = Field(None, description="Not supported: send image_b64.")
    image: bytes | None = Field(None, description="Encoded image file, raw (msgpack bodies only).")
    video: bytes | None = Field(None, description="Encoded video file, raw (msgpack bodies only).")


class ScoreItemRequest(_Request):
    """One sample to score."""

    history: list[Turn] = Field(description="Turns, oldest first; image rewards read the last one.")
    required_rewards: list[str] = Field(description="Names from GET /rewards.")
    metadata: dict[str, Any] | None = Field(None, description="Passed to the scorers untouched.")
    request_id: str | None = None
    sample_id: str | None = None
    group_id: str | None = None
    source_rank: Int64 | None = None
    policy_version: Int64 | None = None
    scorer_version: str | None = None
    idempotency_key: str | None = Field(
        None, description="Equal keys are scored once, also while the first answer is still being computed."
    )


class AggregationRequest(BaseModel):
    """How to reduce each item's rewards to one number in `aggregated`."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["weighted_sum", "mean", "min", "max"] = "weighted_sum"
    weights: dict[str, Annotated[float, Field(allow_inf_nan=False)]] | None = None
    sub_metric_reduce: Literal["first", "mean", "max"] = "first"


class ScoreRequest(_Request):
    """Body of ``POST /score``."""

    requests: list[ScoreItemRequest]
    protocol_version: str = PROTOCOL_VERSION
    grad_mode: bool = False
    call_id: str | None = None
    aggregation: AggregationRequest | None = None
    priority: int = Field(5, ge=0, le=9, description="0 is the most urgent.")
    deadline_s: float | None = Field(
        None,
        gt=0,
        allow_inf_nan=False,
        description="Seconds from arrival; may only shorten the server's timeout.",
    )


class ScoreResponse(BaseModel):
    """Answer of ``POST /score``; every list has one entry per request, in order."""

    results: list[dict[str, dict[str, float | None]]] = Field(
        description="Per reward its sub-metrics; null stands for NaN or infinity and is named in errors."
    )
    errors: list[dict[str, str]] = Field(description="Per failed reward the exception's class and message.")
    identities: list[dict[str, str | int | None]]
    protocol_version: str
    aggregated: list[float | None] | None = Field(None, description="Present when aggregation was asked for.")


class ErrorResponse(BaseModel):
    """Answer to a request that was refused as a whole."""

    detail: str | list[dict[str, Any]]


class HealthResponse(BaseModel):
    """Answer of ``GET /health``: ``"<scorer>:<state>"`` per replica."""

    status: str
    rewards: dict[str, list[str]]


class RewardsResponse(BaseModel):
    """Answer of ``GET /rewards``."""

    rewards: list[str]
