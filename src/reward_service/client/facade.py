"""`RewardClient` and `AsyncRewardClient`: two doors to one engine."""

from __future__ import annotations

import asyncio
import math
import warnings
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from reward_service.aggregation import Aggregation
from reward_service.client.answer import ScoreResponse, Scores
from reward_service.client.engine import Engine
from reward_service.client.errors import ClientClosed, RewardWarning, ScoreError
from reward_service.client.portal import creation_lock, current_portal
from reward_service.client.request import RewardRequest, check_requests
from reward_service.client.settings import BodyFormat, OnError, Settings, without_password
from reward_service.client.wire import CallOptions

T = TypeVar("T")
# Below the gateway's default limits.max_body_bytes, so that its 413 is the exception.
_MAX_BODY_BYTES = 64 * 2**20


class _Client:
    """What both clients share.

    base_url: one URL, or several servers that offer the same rewards: each request goes to the healthy one
        with the fewest items in flight.
    timeout: seconds per attempt, above the server's own ``score_timeout_s``; None waits for ever.
    image_format, image_quality: how pixels are encoded: ``JPEG`` (lossy), ``PNG`` or ``WEBP`` (lossless).
        Encoded bytes and files are sent as they are.
    trust_env: use the proxies of the environment.
    on_error: what `score` does about failed rewards: ``warn``, ``raise`` (ScoreError) or ``ignore``.
    max_retries: attempts after the first, on lost connections, timeouts and 408, 429, 502, 503, 504.
    retry_delay: seconds; pauses are random below this bound, which doubles. A Retry-After wins.
    coalesce_ms: wait this long for concurrent calls with the same options and send them as one POST.
    max_items_per_request, max_body_bytes: longer calls are sent in parts; a 413 lowers the first by itself.
    headers: sent with every request, for instance ``{"Authorization": …}``.
    encode_threads: threads that encode images; default one per core, at most 8.
    body_format: ``json``, or ``msgpack`` (a quarter smaller; needs msgspec).
    max_connections: requests on their way at once; further ones wait for their turn.

    Making a client does no I/O and cannot fail but for ValueError or TypeError. It may be used from several
    threads and event loops, pickled (connections stay behind), and used on both sides of a fork.
    """

    def __init__(
        self,
        base_url: str | Sequence[str],
        timeout: float | None = 180.0,
        image_format: str = "JPEG",
        image_quality: int = 95,
        trust_env: bool = False,
        *,
        on_error: OnError = "warn",
        max_retries: int = 3,
        retry_delay: float = 1.0,
        coalesce_ms: float = 0.0,
        max_items_per_request: int | None = None,
        max_body_bytes: int = _MAX_BODY_BYTES,
        headers: Mapping[str, str] | None = None,
        encode_threads: int | None = None,
        body_format: BodyFormat = "json",
        max_connections: int = 128,
    ) -> None:
        given = locals()
        self._settings = Settings(**{field.name: given[field.name] for field in fields(Settings)})
        self._closed = False
        self._engine: Engine | None = None

    def _live_engine(self) -> Engine:
        """This process's engine; a forked child or an unpickled copy makes its own."""
        if self._closed:
            raise ClientClosed("the client is closed; make a new one")
        portal = current_portal()
        with creation_lock():
            if self._engine is None or self._engine.portal is not portal:
                self._engine = Engine(self._settings, portal)
                # The portal sees to a client that is still there at exit.
                weakref.finalize(self, portal.release, self._engine).atexit = False
            return self._engine

    def _scoring(
        self,
        requests: Sequence[RewardRequest],
        aggregation: Aggregation | Mapping[str, Any] | None,
        priority: int | None,
        deadline_s: float | None,
    ) -> Callable[[Engine], Awaitable[ScoreResponse]]:
        options = _options(aggregation, priority, deadline_s)
        checked = check_requests(requests)
        return lambda engine: engine.score(checked, options)

    def _accepted(self, response: ScoreResponse) -> list[Scores]:
        if response.failures and self._settings.on_error == "raise":
            raise ScoreError(response.summary(), response)
        if response.failures and self._settings.on_error == "warn":
            # The caller's line: below this method and `score`.
            warnings.warn(RewardWarning(response.summary()), stacklevel=3)
        return response.results

    def __getstate__(self) -> dict[str, Any]:
        return {"settings": asdict(self._settings), "closed": self._closed}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._settings = Settings(**state["settings"])
        self._closed = state["closed"]
        self._engine = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(without_password(url) for url in self._settings.urls)})"


class RewardClient(_Client):
    __doc__ = f"Blocking client of a reward service; `AsyncRewardClient` is its twin.\n\n{_Client.__doc__}"

    def score(
        self,
        requests: Sequence[RewardRequest],
        *,
        aggregation: Aggregation | Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Scores]:
        """``{reward: {sub_metric: float}}`` per request, in order.

        A value that is not finite is NaN; a reward that failed altogether is absent. Failures are reported as
        `on_error` says. For the rest see `score_detailed`.
        """
        work = self._scoring(requests, aggregation, priority, deadline_s)
        return self._accepted(self._wait(work))

    def score_detailed(
        self,
        requests: Sequence[RewardRequest],
        *,
        aggregation: Aggregation | Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
    ) -> ScoreResponse:
        """Scores, errors, identities and, with *aggregation*, one number per request; nothing is hidden.

        priority: 0 (most urgent) to 9. deadline_s: seconds from now until the server gives up; no retry
        starts after it. Raises ValueError or TypeError before anything is sent, RequestRefused,
        ItemTooLarge, ServiceUnavailable, InvalidAnswer, or ClientClosed.
        """
        return self._wait(self._scoring(requests, aggregation, priority, deadline_s))

    def health(self) -> dict[str, Any]:
        """The state of the first server that answers, without retries; raises ServiceUnavailable."""
        return self._wait(Engine.health)

    def rewards(self) -> list[str]:
        """The names that `required_rewards` may hold."""
        return self._wait(Engine.rewards)

    def close(self) -> None:
        """Close the connections; calls in other threads end with ClientClosed."""
        self._closed = True
        if self._engine is not None:
            self._engine.portal.release(self._engine).result()

    def _wait(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        engine = self._live_engine()
        future = engine.start(partial(work, engine))
        try:
            return future.result()
        except BaseException:
            # Ctrl-C takes the POST along, so that the server can drop its work.
            future.cancel()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncRewardClient(_Client):
    __doc__ = (
        "Client of a reward service for asyncio; `RewardClient` is its twin. Cancelling a call cancels its "
        f"POST. It belongs to no loop, so one client serves many ``asyncio.run``.\n\n{_Client.__doc__}"
    )

    async def score(
        self,
        requests: Sequence[RewardRequest],
        *,
        aggregation: Aggregation | Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
    ) -> list[Scores]:
        """See `RewardClient.score`."""
        work = self._scoring(requests, aggregation, priority, deadline_s)
        return self._accepted(await self._wait(work))

    async def score_detailed(
        self,
        requests: Sequence[RewardRequest],
        *,
        aggregation: Aggregation | Mapping[str, Any] | None = None,
        priority: int | None = None,
        deadline_s: float | None = None,
    ) -> ScoreResponse:
        """See `RewardClient.score_detailed`."""
        return await self._wait(self._scoring(requests, aggregation, priority, deadline_s))

    async def health(self) -> dict[str, Any]:
        """See `RewardClient.health`."""
        return await self._wait(Engine.health)

    async def rewards(self) -> list[str]:
        """See `RewardClient.rewards`."""
        return await self._wait(Engine.rewards)

    async def close(self) -> None:
        """See `RewardClient.close`."""
        self._closed = True
        if self._engine is not None:
            await asyncio.wrap_future(self._engine.portal.release(self._engine))

    async def _wait(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        engine = self._live_engine()
        return await asyncio.wrap_future(engine.start(partial(work, engine)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _options(
    aggregation: Aggregation | Mapping[str, Any] | None, priority: int | None, deadline_s: float | None
) -> CallOptions:
    if aggregation is not None and not isinstance(aggregation, Aggregation):
        if not isinstance(aggregation, Mapping):
            raise TypeError(f"aggregation must be an Aggregation or a dict, not {aggregation!r}")
        aggregation = Aggregation.from_mapping(aggregation)
    if priority is not None:
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise TypeError(f"priority must be an int, not {priority!r}")
        if not 0 <= priority <= 9:
            raise ValueError(f"priority is 0 (most urgent) to 9, not {priority}")
    if deadline_s is not None:
        if isinstance(deadline_s, bool) or not isinstance(deadline_s, (int, float)):
            raise TypeError(f"deadline_s must be a number of seconds, not {deadline_s!r}")
        if not math.isfinite(deadline_s) or deadline_s <= 0:
            raise ValueError(f"deadline_s must be above 0 seconds, not {deadline_s}")
    return CallOptions(aggregation, priority, deadline_s)
