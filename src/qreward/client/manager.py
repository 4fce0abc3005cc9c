"""`OpenAIChatProxyManager`: several servers of the same kind as one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from qreward.client.batch import BatchCalls
from qreward.client.failover import Fleet, Until, pick
from qreward.client.load_balancer import LoadBalanceStrategy
from qreward.client.model_router import ModelRouter
from qreward.client.openai import OpenAIChatProxy
from qreward.client.selection import Selection, gate_of
from qreward.errors import DeadlineExceeded, NoHealthySource
from qreward.events import Call
from qreward.policy.classify import Kind, classify
from qreward.policy.hedge import HedgePolicy, parse_hedge_time
from qreward.runtime import clock
from qreward.runtime.driver import Plan, drive
from qreward.runtime.gate import Gate
from qreward.runtime.spec import GateSpec

_WHILE_PROBING_S = 1.0  # a probe that was given out may never be made


class OpenAIChatProxyManager(BatchCalls):
    """Spreads calls over its proxies by *strategy* and keeps them away from endpoints that fail or hang.

    A call whose endpoint dies or hangs continues at another one at once, also when it was made on a proxy that
    `select_proxy` gave (*failover* = False switches this off). An endpoint that is out of service is asked again with
    one call at a time. *hedge* (seconds, or a quantile such as ``"p99"``) sends a duplicate of a slow chat completion
    or embedding to another endpoint, for at most *hedge_proportion* of the calls; streams are never duplicated.
    """

    def __init__(
        self,
        strategy: LoadBalanceStrategy = LoadBalanceStrategy.ROUND_ROBIN,
        *,
        failover: bool = True,
        hedge: float | str | None = None,
        hedge_proportion: float = 0.05,
    ) -> None:
        self._proxies: dict[str, OpenAIChatProxy] = {}
        self._weights: dict[str, int] = {}
        self._marked: set[str] = set()  # unhealthy by the user's word
        self._selection = Selection(strategy)
        self._spread = Selection(strategy)  # of calls that move, which must not shift the turns of new ones
        self._model_router = ModelRouter()
        self._fleet = Fleet(self._sibling) if failover else None
        delay_s, quantile = parse_hedge_time(hedge or 0)
        policy = HedgePolicy(delay_s, quantile, 1) if hedge else None
        self._plan = Plan(hedge=policy)
        self._gate = Gate("manager", GateSpec(hedge_ratio=hedge_proportion if policy else None))

    # -- members -----------------------------------------------------------------------------------------------------

    def add_proxy(self, key: str, proxy: OpenAIChatProxy, weight: int = 1) -> Self:
        """Add *proxy* under *key*; ValueError when the key is taken. A weight below 1 counts as 1."""
        if key in self._proxies:
            raise ValueError(f"proxy {key!r} already exists; remove it first or choose another key")
        self._proxies[key] = proxy
        self._weights[key] = max(1, weight)
        self._selection.weighted.update_weights(self._weights)
        self._adopt(proxy)
        return self

    def _adopt(self, proxy: OpenAIChatProxy) -> None:
        if self._fleet is not None:
            self._fleet.add(proxy)

    def add_proxy_with_default(self, key: str, base_url: str, api_key: str) -> Self:
        """Add a proxy with default settings for *base_url*."""
        return self.add_proxy(key, OpenAIChatProxy(base_url=base_url, api_key=api_key))

    def add_proxies_with_default(self, proxies: Mapping[str, tuple[str, str]]) -> Self:
        """Add several: {key: (base_url, api_key)}."""
        for key, (base_url, api_key) in proxies.items():
            self.add_proxy_with_default(key, base_url, api_key)
        return self

    def proxy(self, key: str) -> OpenAIChatProxy:
        """The proxy under *key*; KeyError."""
        self._require(key)
        return self._proxies[key]

    def _require(self, key: str) -> None:
        if key not in self._proxies:
            raise KeyError(f"proxy {key!r} does not exist; there are {', '.join(self._proxies) or 'none'}")

    def exist_proxy(self, key: str) -> bool:
        """Whether *key* is taken."""
        return key in self._proxies

    def proxies(self) -> dict[str, OpenAIChatProxy]:
        """All proxies by key (a copy)."""
        return dict(self._proxies)

    def healthy_proxies(self) -> dict[str, OpenAIChatProxy]:
        """Those that are in service (a copy)."""
        return {key: proxy for key, proxy in self._proxies.items() if key not in self._marked and self._works(proxy)}

    def _works(self, proxy: OpenAIChatProxy) -> bool:
        return self._fleet is None or self._fleet.state(proxy) == "healthy"

    def mark_unhealthy(self, key: str) -> None:
        """Send no calls to *key* until `mark_healthy`; KeyError."""
        self._require(key)
        self._marked.add(key)

    def mark_healthy(self, key: str) -> None:
        """Send calls to *key* again, whatever is remembered against it; KeyError."""
        self._require(key)
        self._marked.discard(key)
        if self._fleet is not None:
            self._fleet.revive(self._proxies[key])

    async def remove_proxy(self, key: str) -> None:
        """Close and forget *key*; an unknown key is ignored."""
        proxy = self._proxies.pop(key, None)
        if proxy is None:
            return
        self._weights.pop(key, None)
        self._marked.discard(key)
        self._selection.weighted.update_weights(self._weights)
        if self._fleet is not None:
            self._fleet.remove(proxy)
        await _close(proxy)

    # -- choosing ----------------------------------------------------------------------------------------------------

    def register_model_route(
        self,
        pattern: str,
        proxy_map: Mapping[str, OpenAIChatProxy],
        weights: Mapping[str, int] | None = None,
        strategy: LoadBalanceStrategy = LoadBalanceStrategy.ROUND_ROBIN,
    ) -> Self:
        """Send calls for models that match *pattern* to *proxy_map* only."""
        self._model_router.register(pattern, proxy_map, weights, strategy)
        for proxy in proxy_map.values():
            self._adopt(proxy)
        return self

    def list_routes(self) -> list[dict[str, Any]]:
        """The routes, exact names first."""
        return self._model_router.list_routes()

    def select_proxy(self, model: str | None = None) -> OpenAIChatProxy:
        """The proxy for the next call: of the route for *model*, else of all, by strategy.

        When all are out of service by themselves, the one that is asked again first; NoHealthySource (a RuntimeError)
        when none is there or all are marked unhealthy.
        """
        return self._choose(model)[0]

    def _choose(self, model: str | None) -> tuple[OpenAIChatProxy, bool]:
        """The proxy for the next call, and whether it may be asked now."""
        group = self._model_router.resolve(model) if model is not None else None
        if group is not None:
            candidates = {k: group.proxies[k] for k in group.insertion_order if k in group.healthy_keys}
            chosen = pick(self._fleet, group.selection, candidates, group.weights)
            return chosen or (self._model_router.select_from_group(group), True)
        candidates = {k: p for k, p in self._proxies.items() if k not in self._marked}
        chosen = pick(self._fleet, self._selection, candidates, self._weights)
        if chosen is None:
            raise NoHealthySource("All proxies are marked unhealthy." if self._proxies else "None was added.")
        return chosen

    def _sibling(self, proxy: OpenAIChatProxy, others: list[OpenAIChatProxy]) -> OpenAIChatProxy | None:
        """Where a call of *proxy* goes on: a healthy member that serves at least the same routes; None = stay."""
        routes = self._routes(proxy)
        names = {id(member): key for key, member in self._proxies.items()}
        fit = {
            names.get(id(other), other.endpoint_name): other
            for other in others
            if routes <= self._routes(other) and self._works(other) and not self._out(other)
        }
        key = self._spread.select(list(fit), set(fit), fit, {key: self._weights.get(key, 1) for key in fit})
        return None if key is None else fit[key]

    def _routes(self, proxy: OpenAIChatProxy) -> set[str]:
        routes = {g.pattern for g in self._model_router.groups() if any(p is proxy for p in g.proxies.values())}
        if any(p is proxy for p in self._proxies.values()):
            routes.add("")
        return routes

    def _out(self, proxy: OpenAIChatProxy) -> bool:
        return any(self._proxies[key] is proxy for key in self._marked)

    async def _turn(self, model: str | None, until: Until) -> OpenAIChatProxy:
        """`select_proxy`, waiting for the first endpoint to return while all are out of service by themselves."""
        while True:
            proxy, admitted = self._choose(model)
            if admitted or self._fleet is None:
                return proxy
            pause = self._fleet.returns_in(proxy)
            left = until.left()
            if pause > left or left <= 0.0:
                when = f"the first is asked again in {pause:.1f} s" if pause else "the first is being asked again"
                raise DeadlineExceeded(f"every endpoint is out of service; {when}")
            await self._fleet.change(min(left, pause or _WHILE_PROBING_S))

    def _waits(self, exc: Exception, model: str | None, until: Until) -> bool:
        """Whether a call that failed is made again: no endpoint for *model* answers anything, and there is time.

        A status that every endpoint gives may be due to the call itself, and is final.
        """
        verdict = classify(exc)
        if self._fleet is None or until.left() <= 0.0 or verdict.kind is not Kind.TRANSIENT or verdict.status:
            return False
        group = self._model_router.resolve(model) if model is not None else None
        members = self._proxies if group is None else group.proxies
        return not any(self._works(proxy) and not self._out(proxy) for proxy in members.values())

    # -- calls -------------------------------------------------------------------------------------------------------

    async def chat_completion(self, messages: Any, model: str, **kwargs: Any) -> Any:
        """As `OpenAIChatProxy.chat_completion`, at whichever endpoint is chosen."""
        return await self._call("chat_completion", {"messages": messages, "model": model}, kwargs)

    async def embeddings(self, *, sentences: Any = None, model: str | None = None, **kwargs: Any) -> list[Any]:
        """As `OpenAIChatProxy.embeddings`, at whichever endpoint is chosen."""
        value: list[Any] = await self._call("embeddings", {"sentences": sentences, "model": model}, kwargs)
        return value

    async def _call(self, method: str, arguments: dict[str, Any], kwargs: dict[str, Any]) -> Any:
        until = Until(kwargs.get("deadline_s"))
        used: list[OpenAIChatProxy] = []

        async def once() -> Any:
            proxy = await self._turn(arguments["model"], until)
            if proxy in used:  # a duplicate goes elsewhere
                proxy = self._sibling(proxy, [p for p in self._everybody() if p not in used]) or proxy
            used.append(proxy)
            try:
                return await getattr(proxy, method)(**arguments, **{**kwargs, **until.argument()})
            finally:
                used.remove(proxy)

        async def attempt() -> Any:
            return await self._through_outages(once, arguments["model"], until)

        if self._plan.hedge is None:
            return await attempt()
        call = Call("manager", method, kwargs.get("priority", 5), clock.monotonic())
        return await drive(self._plan, self._gate, attempt, call)

    async def _through_outages(self, once: Callable[[], Awaitable[Any]], model: str | None, until: Until) -> Any:
        """*once*, again after a failure for which every endpoint is out of service, while there is time for that."""
        last: Exception | None = None
        while True:
            try:
                return await once()
            except DeadlineExceeded as exc:
                if last is None or until.given:
                    raise exc from last
                raise last from None
            except Exception as exc:
                if not self._waits(exc, model, until):
                    raise
                last = exc

    @property
    def _room(self) -> int:
        """Calls at once that all endpoints together take."""
        return max(1, sum(getattr(proxy, "_max_concurrent", 1) for proxy in self._everybody()))

    def _everybody(self) -> list[OpenAIChatProxy]:
        members = [*self._proxies.values(), *(p for g in self._model_router.groups() for p in g.proxies.values())]
        return list({id(proxy): proxy for proxy in members}.values())

    async def stream_chat_completion(self, messages: Any, model: str, **kwargs: Any) -> AsyncGenerator[str, None]:
        """As `OpenAIChatProxy.stream_chat_completion`; fails over until the first piece is there."""
        until, begun = Until(kwargs.get("deadline_s")), False
        while True:
            proxy = await self._turn(model, until)
            pieces = proxy.stream_chat_completion(messages=messages, model=model, **{**kwargs, **until.argument()})
            try:
                async for piece in pieces:
                    begun = True
                    yield piece
                return
            except Exception as exc:
                if begun or not self._waits(exc, model, until):
                    raise
            finally:
                await pieces.aclose()

    async def batch_stream_chat_completion(
        self, batch_messages: Sequence[Any], model: str, *args: Any, **kwargs: Any
    ) -> AsyncGenerator[tuple[int, str], None]:
        """As `OpenAIChatProxy.batch_stream_chat_completion`, the streams spread over the endpoints."""
        if any(gate_of(proxy) is None for proxy in self._everybody()):  # a stand-in that knows its own way
            merged: Any = self.select_proxy(model).batch_stream_chat_completion(
                batch_messages=batch_messages, model=model, **kwargs
            )
        else:
            merged = super().batch_stream_chat_completion(batch_messages, model, *args, **kwargs)
        async with contextlib.aclosing(merged):
            async for item in merged:
                yield item

    # -- life --------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Close and forget every proxy; closing again does nothing."""
        members = self._everybody()
        self._proxies.clear()
        self._weights.clear()
        for proxy in members:
            if self._fleet is not None:
                self._fleet.remove(proxy)
            await _close(proxy)

    close = aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _close(proxy: Any) -> None:
    if gate_of(proxy) is not None:
        await proxy.aclose()
    else:
        await proxy.client.close()
