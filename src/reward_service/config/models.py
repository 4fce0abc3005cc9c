"""What a service configuration is: frozen models with every field and default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from reward_service.config.quantities import format_bytes, parse_bytes
from reward_service.config.rules import (
    AnyCase,
    AtLeastZero,
    Bytes,
    Count,
    CpuAmount,
    EmptyIsDefault,
    ExistingFile,
    ExistingFolder,
    Flag,
    GpuAmount,
    Loc,
    MpsDirectory,
    Name,
    Origin,
    Scorer,
    Seconds,
    SizeText,
    conflict,
    not_json,
    refuse,
    tensor_parallel_problem,
)

# The scorers whose results under MPS are known, and the types that a partial thread share corrupts.
_MPS_SCORERS = ("clip", "pickscore")
_HALF_PRECISION = ("float16", "bfloat16")


class Section(BaseModel):
    """Base of all sections: immutable, no unknown keys, no NaN and no infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ServerConfig(Section):
    """How the gateway listens and answers."""

    host: Name = "0.0.0.0"  # noqa: S104 - a service for trainers on other machines
    port: Annotated[int, Field(strict=True, ge=0, le=65535)] = 8080
    score_timeout_s: Seconds = 120.0
    grace_period_s: AtLeastZero = 30.0
    on_bad_item: Literal["error", "reject"] = "error"
    expose_tracebacks: Flag = False
    video_roots: tuple[ExistingFolder, ...] = ()
    decode_threads: Count | None = None


class LimitsConfig(Section):
    """What one request, and all requests together, may cost."""

    max_body_bytes: Bytes = 128 * 2**20
    max_items_per_request: Count = 1024
    max_image_pixels: Count = 33_554_432
    max_video_bytes: Bytes = 64 * 2**20
    max_text_chars: Count = 32_768
    max_json_depth: Annotated[int, Field(strict=True, ge=1, le=200)] = 32
    max_queued_items: Count = 16_384
    body_bytes_in_flight: Annotated[Bytes, Field(validate_default=True)] = 256 * 2**20
    decoded_bytes_in_flight: Annotated[Bytes, Field(validate_default=True)] = 384 * 2**20
    max_requests_in_flight: Count = 1024
    idempotency_cache_size: Annotated[int, Field(strict=True, ge=0)] = 1024

    @field_validator("body_bytes_in_flight")
    @classmethod
    def _holds_one_body(cls, room: int, info: ValidationInfo) -> int:
        body = info.data.get("max_body_bytes", 0)
        if 2 * body > room:
            raise conflict(
                f"2 x max_body_bytes = 2 x {format_bytes(body)} = {format_bytes(2 * body)} does not fit "
                f"{format_bytes(room)} (a body is counted twice while it is parsed); "
                f"give body_bytes_in_flight at least {2 * body} bytes, or max_body_bytes at most {room // 2}",
                beside="max_body_bytes",
            )
        return room

    @field_validator("decoded_bytes_in_flight")
    @classmethod
    def _holds_one_image(cls, room: int, info: ValidationInfo) -> int:
        pixels = info.data.get("max_image_pixels", 0)
        if 3 * pixels > room:
            raise conflict(
                f"max_image_pixels x 3 bytes = {pixels} x 3 = {format_bytes(3 * pixels)} does not fit "
                f"{format_bytes(room)}, so the largest image could never be decoded; "
                f"give decoded_bytes_in_flight at least {3 * pixels} bytes, "
                f"or max_image_pixels at most {room // 3}",
                beside="max_image_pixels",
            )
        return room


class ClusterConfig(Section):
    """Which Ray cluster holds the replicas; without an address the service starts a local one."""

    ray_address: Name | None = None
    namespace: Name | None = None
    placement_timeout_s: Seconds = 120.0


class MpsConfig(Section):
    """CUDA MPS: several scorer processes on one GPU under a daemon that someone else runs."""

    mode: Annotated[Literal["disabled", "managed", "external"], AnyCase] = "disabled"
    pipe_directory: Annotated[MpsDirectory | None, Field(validate_default=True)] = None
    log_directory: MpsDirectory | None = None

    @field_validator("mode")
    @classmethod
    def _is_available(cls, mode: str) -> str:
        if mode == "managed":
            raise ValueError(
                "managed MPS is not available in this version; start the daemon yourself and use mode: external"
            )
        return mode

    @field_validator("pipe_directory", "log_directory")
    @classmethod
    def _suits_the_mode(cls, directory: str | None, info: ValidationInfo) -> str | None:
        mode = info.data.get("mode")
        if mode == "disabled" and directory is not None:
            raise ValueError("is given while mps.mode is disabled; remove it, or use mode: external")
        if mode == "external" and directory is None and info.field_name == "pipe_directory":
            text = "is missing; mode: external needs the daemon's CUDA_MPS_PIPE_DIRECTORY here"
            raise conflict(text, beside="mode")
        return directory


class RewardMps(Section):
    """One reward's share of a GPU under MPS."""

    active_thread_percentage: Annotated[int, Field(strict=True, ge=1, le=100)] = 100
    device_memory_limit: SizeText | None = None

    @property
    def device_memory_limit_bytes(self) -> int | None:
        """`device_memory_limit` in bytes."""
        return None if self.device_memory_limit is None else parse_bytes(self.device_memory_limit)


class RewardConfig(Section):
    """One reward: what scores it, where, how many replicas, and how batches and failures are handled.

    The order of the fields matters: a rule between two fields sits on the later one.
    """

    name: Name
    scorer: Scorer
    runtime_env: ExistingFile | None = None
    num_replicas: Count = 1
    num_gpus: GpuAmount = 1.0
    num_cpus: CpuAmount = 1.0
    max_concurrency: Count = 1
    scheduling: Annotated[Literal["pack", "spread"], AnyCase] = "pack"
    params: dict[str, Any] = Field(default_factory=dict)
    mps: RewardMps | None = None
    required: Flag = True
    max_batch_size: Count | None = None
    max_wait_ms: AtLeastZero = 0.0
    timeout_s: Seconds | None = None
    warmup: Flag = True
    hang_timeout_s: Seconds | None = 600.0
    start_timeout_s: Seconds = 1800.0
    max_start_attempts: Count = 3

    @field_validator("params", mode="before")
    @classmethod
    def _travels_and_fits(cls, params: object, info: ValidationInfo) -> object:
        if params is None:
            return {}
        if not isinstance(params, dict):
            return params
        problems = list(not_json(params, ()))
        if "tensor_parallel_size" in params:
            gpus = info.data.get("num_gpus", math.inf)
            text = tensor_parallel_problem(params["tensor_parallel_size"], gpus)
            problems += [(("tensor_parallel_size",), text)] if text else []
        if problems:
            refuse(problems)
        return params

    @field_validator("mps")
    @classmethod
    def _suits_mps(cls, mps: RewardMps | None, info: ValidationInfo) -> RewardMps | None:
        problems = [] if mps is None else list(_mps_problems(mps, info.data))
        if problems:
            refuse(problems)
        return mps


def _mps_problems(mps: RewardMps, reward: dict[str, Any]) -> Iterator[tuple[Loc, str]]:
    gpus, scorer = reward.get("num_gpus"), reward.get("scorer")
    if gpus is not None and not 0 < gpus < 1:
        yield (), f"shares one GPU, but num_gpus is {gpus:g}; give num_gpus between 0 and 1, or remove mps"
    if scorer is not None and scorer not in _MPS_SCORERS:
        yield (), f"is for the scorers {' and '.join(_MPS_SCORERS)}, not {scorer!r}; remove mps"
    dtype = reward.get("params", {}).get("dtype")
    if dtype in _HALF_PRECISION and mps.active_thread_percentage != 100:
        yield (
            ("active_thread_percentage",),
            f"{mps.active_thread_percentage} with dtype {dtype} corrupts scores; use 100, or dtype float32",
        )


class ServiceConfig(Section):
    """A whole configuration file. Build it with `load_config`."""

    server: Annotated[ServerConfig, EmptyIsDefault] = ServerConfig()
    limits: Annotated[LimitsConfig, EmptyIsDefault] = LimitsConfig()
    cluster: Annotated[ClusterConfig, EmptyIsDefault] = ClusterConfig()
    mps: Annotated[MpsConfig, EmptyIsDefault] = MpsConfig()
    rewards: tuple[RewardConfig, ...]

    _source: Path | None = PrivateAttr(default=None)

    @property
    def source(self) -> Path | None:
        """The file that this was read from, absolute; None for text."""
        return self._source

    def model_post_init(self, context: Any, /) -> None:
        self._source = context.source if isinstance(context, Origin) else None

    @field_validator("rewards", mode="wrap")
    @classmethod
    def _together(
        cls, value: object, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> tuple[RewardConfig, ...]:
        # On the raw value, so that a reward with a problem of its own hides none of these.
        problems = list(_problems_between(value, info.data.get("mps")))
        try:
            rewards: tuple[RewardConfig, ...] = handler(value)
        except ValidationError as error:
            refuse(problems, also=error)
        if problems:
            refuse(problems)
        return rewards


def _problems_between(rewards: object, mps: MpsConfig | None) -> Iterator[tuple[Loc, str]]:
    if not isinstance(rewards, list | tuple):
        return
    if not rewards:
        yield (), "the list is empty; give at least one entry with name and scorer"
        return
    raw = [reward.model_dump() if isinstance(reward, RewardConfig) else reward for reward in rewards]
    first: dict[str, int] = {}
    for index, reward in enumerate(raw):
        name = reward.get("name") if isinstance(reward, dict) else None
        if isinstance(name, str) and first.setdefault(name, index) != index:
            yield (index, "name"), f"{name!r} is also the name of rewards[{first[name]}]; names must differ"
    if mps and mps.mode != "disabled" and not any(isinstance(r, dict) and r.get("mps") is not None for r in raw):
        yield (), f"mps.mode is {mps.mode}, but no reward has an mps block; add one, or use mode: disabled"
