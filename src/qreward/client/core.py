"""The engine of a proxy: one gate, one wire, and how a job gets through them."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import openai

from qreward.client.errors import TRANSPORT_ERRORS, httpx_of_openai
from qreward.client.jobs import CollectJob, Job, StreamJob
from qreward.client.routed import RoutedGate
from qreward.client.views import RateLimiterView, SemaphoreView
from qreward.client.wire import Wire
from qreward.errors import DeadlineExceeded
from qreward.events import Call
from qreward.policy.backoff import Backoff
from qreward.policy.retry import RetryPolicy
from qreward.runtime import clock
from qreward.runtime.driver import Plan, drive
from qreward.runtime.gate import Gate
from qreward.runtime.spec import AdaptiveSpec, GateSpec
from qreward.runtime.stream import stream

if TYPE_CHECKING:
    from qreward.client.openai import OpenAIChatProxy

T = TypeVar("T")
Listener = Callable[["OpenAIChatProxy", bool, BaseException | None, float], None]
Redirect = Callable[["OpenAIChatProxy", int], "OpenAIChatProxy | None"]

MAX_RETRIES = 5
"""Attempts per call, the first included."""

log = logging.getLogger("qreward.client.openai")

_UNLIMITED_PER_S = 1e6  # a rate that no client reaches is no limit
_SLOW_START = 16  # attempts at once before the server has answered any
_RETRIED = (openai.APIError, *TRANSPORT_ERRORS, httpx_of_openai().TransportError)
_PLAN = Plan(retry=RetryPolicy(MAX_RETRIES - 1, Backoff(base_s=0.25, factor=3.0, max_s=8.0), _RETRIED))
# Where the next attempt may go to another server there is no reason to wait long.
_ROUTED_PLAN = Plan(retry=RetryPolicy(MAX_RETRIES - 1, Backoff(base_s=0.05, max_s=2.0), _RETRIED))


class ProxyCore:
    """Everything of a proxy that is not a kind of call.

    For those who unite several proxies: `observe` tells them how attempts end, `_redirect` lets them choose the proxy
    of each attempt, `_chat_once` makes one attempt outside of gate and retries, `interrupt` frees attempts that hang.

    ``_redirect(proxy, attempt)`` is asked before every attempt which proxy takes it; None = the same. With *attempt* 1
    nothing failed yet (the call begins, or has waited in the queue of *proxy*): move only when *proxy* is out of
    service. From 2 on the last attempt, at *proxy*, failed.
    """

    endpoint_name: str
    _gate: Gate
    _wire: Wire
    _client: Any = None
    _plan: Plan = _PLAN
    _routed_plan: Plan = _ROUTED_PLAN
    _redirect: Redirect | None = None
    _listeners: tuple[Listener, ...] = ()
    _default_timeout: Any = None
    _max_concurrent: int
    _rate: tuple[float | None, float]
    _adaptive: bool

    # -- one call --------------------------------------------------------------------------------------------------

    async def _run(self, job: Job[T] | CollectJob, name: str, priority: int, deadline_s: float | None) -> T:
        """*job*, in its turn, with retries."""
        call = Call(self.endpoint_name, name, priority, clock.monotonic())
        if self._redirect is None:
            pending = drive(self._within(deadline_s), self._gate, lambda: self._chat_once(job), call)
        else:
            route = RoutedGate(cast("OpenAIChatProxy", self))
            pending = drive(self._within(deadline_s), cast(Gate, route), lambda: route.proxy._chat_once(job), call)
        if deadline_s is None:
            return await pending
        try:
            return await pending
        except TimeoutError as exc:  # openai's timeout is none of these
            raise self._too_late(call, deadline_s) from exc

    def _within(self, deadline_s: float | None) -> Plan:
        plan = self._plan if self._redirect is None else self._routed_plan
        return plan if deadline_s is None else dataclasses.replace(plan, timeout_s=deadline_s)

    def _too_late(self, call: Call, deadline_s: float) -> DeadlineExceeded:
        last = f"; the last failed with {type(call.error).__name__}: {call.error}" if call.error else ""
        return DeadlineExceeded(
            f"{call.name}: no answer from {self.endpoint_name} within {deadline_s:g} s, {call.wait_s:.2f} s of them "
            f"spent waiting for a turn, in {call.attempts} attempts{last}"
        )

    async def _chat_once(self, job: Job[T] | CollectJob) -> T:
        """Exactly one attempt at this proxy: no gate, no retries. Listeners are told."""
        proxy = cast("OpenAIChatProxy", self)
        if not self._listeners:
            return cast(T, await job.run(proxy))
        started = clock.monotonic()
        try:
            value = await job.run(proxy)
        except BaseException as exc:
            self._tell(False, exc, started)
            raise
        self._tell(True, None, started)
        return cast(T, value)

    async def _stream_run(self, job: StreamJob, priority: int, deadline_s: float | None) -> AsyncGenerator[str, None]:
        """The pieces of *job*'s answer; retried until the first one is there."""
        call = Call(self.endpoint_name, "stream_chat_completion", priority, clock.monotonic())
        if self._redirect is None:
            pieces = stream(self._within(deadline_s), self._gate, lambda: self._stream_once(job), call)
        else:
            route = RoutedGate(cast("OpenAIChatProxy", self))
            pieces = stream(self._within(deadline_s), cast(Gate, route), lambda: route.proxy._stream_once(job), call)
        try:
            async for piece in pieces:
                yield piece
        except TimeoutError as exc:  # openai's timeout is none of these
            raise self._too_late(call, deadline_s or 0.0) from exc
        finally:
            await pieces.aclose()

    async def _stream_once(self, job: StreamJob) -> AsyncGenerator[str, None]:
        """One attempt at a stream: no gate, no retries. Listeners are told at its end."""
        started = clock.monotonic()
        pieces = job.run(cast("OpenAIChatProxy", self))
        try:
            async for piece in pieces:
                yield piece
        except BaseException as exc:
            self._tell(False, exc, started)
            raise
        else:
            self._tell(True, None, started)
        finally:
            await pieces.aclose()

    # -- for managers and pools ------------------------------------------------------------------------------------

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener(proxy, ok, exc, latency_s)`` after each attempt; returns a function that ends it.

        *exc* may be a CancelledError or GeneratorExit, which blame nobody. What a listener raises is logged.
        """
        self._listeners = (*self._listeners, listener)

        def stop() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return stop

    def interrupt(self) -> int:
        """End every attempt in flight with an openai.APIConnectionError, so that it is repeated; their number."""
        return self._wire.interrupt()

    def _tell(self, ok: bool, exc: BaseException | None, started: float) -> None:
        latency_s = clock.monotonic() - started
        for listener in self._listeners:
            try:
                listener(cast("OpenAIChatProxy", self), ok, exc, latency_s)
            except Exception:
                log.exception("listener %r of %s failed", listener, self.endpoint_name)

    # -- limits ----------------------------------------------------------------------------------------------------

    def _gate_spec(self) -> GateSpec:
        size, period = self._rate
        limited = size is not None and size > 0 and period > 0 and size / period < _UNLIMITED_PER_S
        if limited and size is not None and size < 1:  # half a call a second is one in two
            size, period = 1.0, period / size
        most = self._max_concurrent
        return GateSpec(
            rate_size=size if limited else None,
            rate_window_s=period if limited else 1.0,
            concurrency=most,
            adaptive=AdaptiveSpec(initial=min(_SLOW_START, most), minimum=1, maximum=most) if self._adaptive else None,
            retry_ratio=0.5,
            retry_burst=max(10.0, float(most)),
        )

    @property
    def semaphore(self) -> SemaphoreView:
        """The slots for attempts, as an `asyncio.Semaphore` shows them."""
        return SemaphoreView(self._gate)

    @property
    def rate_limiter(self) -> RateLimiterView:
        """The limit on starts, as an `aiolimiter.AsyncLimiter` shows it."""
        size, period = self._rate
        return RateLimiterView(self._gate, size or float("inf"), period)

    # -- the openai client -------------------------------------------------------------------------------------------

    @property
    def client(self) -> Any:
        """An `openai.AsyncOpenAI` for the same server, built when it is first asked for.

        Calls made on it directly are sent once, outside of the proxy's limits. When ``client.chat.completions.create``
        or ``client.embeddings.create`` is replaced, by a spy or a mock, the proxy's calls go through the replacement.
        """
        from qreward.client.async_client import WiredClient, wired_client  # imports openai's resources

        client = self._client
        if client is None or (type(client) is WiredClient and client.is_closed()):
            client = self._client = wired_client(self._wire, self._default_timeout)
        return client

    @client.setter
    def client(self, client: Any) -> None:
        self._client = client

    async def aclose(self) -> None:
        """Close all connections; closing again does nothing. Another call opens new ones."""
        if self._client is not None:
            await self._client.close()
        wire = getattr(self, "_wire", None)
        if wire is not None:
            await wire.transport.aclose()

    close = aclose
