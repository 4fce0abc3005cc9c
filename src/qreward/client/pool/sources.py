"""The kinds of compute that a pool unites."""

from __future__ import annotations

import asyncio
import contextvars
import fnmatch
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import orjson

from qreward.callables import code_of
from qreward.client.endpoint import Endpoint
from qreward.client.errors import invalid_answer
from qreward.client.openai import OpenAIChatProxy
from qreward.client.pool.state import SourceState
from qreward.client.pool.work import Done, Scores, Work
from qreward.client.request import Request
from qreward.client.transport import Reply, Transport, TransportSettings
from qreward.client.wire import Wire
from qreward.errors import ConfigError
from qreward.policy.classify import Kind, Verdict
from qreward.runtime.driver import Plan
from qreward.runtime.threads import ThreadGroup

_ONE_ATTEMPT = Plan()  # the pool repeats, and elsewhere


class Source(ABC):
    """One source of compute under *name*.

    max_concurrent: tasks at once. requests_per_min, tokens_per_min: its quotas. price: currency units per million
    tokens; price_per_call: per task; 0 = free. weight: its share among sources of equal price.
    """

    kind: str

    def __init__(
        self,
        name: str,
        *,
        max_concurrent: int = 64,
        requests_per_min: float | None = None,
        tokens_per_min: float | None = None,
        price: float = 0.0,
        price_per_call: float = 0.0,
        weight: float = 1.0,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a source needs a name (a string), got {name!r}")
        if not isinstance(max_concurrent, int) or max_concurrent < 1:
            raise ConfigError(f"source {name!r}: max_concurrent must be a whole number >= 1, got {max_concurrent!r}")
        for field, value in (("requests_per_min", requests_per_min), ("tokens_per_min", tokens_per_min)):
            if value is not None and not _number(value) > 0:
                raise ConfigError(f"source {name!r}: {field} must be > 0, or None for no quota, got {value!r}")
        if not _number(weight) > 0:
            raise ConfigError(f"source {name!r}: weight must be > 0, got {weight!r}")
        for field, value in (("price", price), ("price_per_call", price_per_call)):
            if not _number(value) >= 0:
                raise ConfigError(f"source {name!r}: {field} must be >= 0 (0 = free), got {value!r}")
        self.name = name
        self.price = price
        self.price_per_call = price_per_call
        self.weight = weight
        self.state = SourceState(max_concurrent, requests_per_min, tokens_per_min)

    @abstractmethod
    def serves(self, work: Work) -> bool:
        """Whether it can do *work* at all."""

    @abstractmethod
    async def execute(self, work: Work) -> Done:
        """Exactly one attempt."""

    def stream(self, work: Work, left_s: float | None) -> AsyncGenerator[str, None]:
        """One attempt at a stream of text, of at most *left_s* seconds."""
        raise ConfigError(f"source {self.name!r} ({self.kind}) has no streams")

    def room(self) -> bool:
        """Whether it takes one more task, its quotas aside."""
        return self.state.inflight < self.state.max_concurrent

    def cost(self, work: Work) -> float:
        """The expected price of *work*."""
        return self.price_per_call + self.price * work.tokens / 1e6

    def at_fault(self, exc: BaseException, verdict: Verdict) -> bool:
        """Whether *exc* speaks against the source rather than against the task."""
        return verdict.kind is Kind.TRANSIENT

    async def aclose(self) -> None:  # noqa: B027 - most sources have nothing to close
        """Close connections."""


class OpenAISource(Source):
    """An OpenAI-compatible server; *models* are the names or globs that it serves. More keywords go to its proxy."""

    kind = "openai"

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        api_key: str | None = None,
        models: str | Sequence[str] = ("*",),
        max_concurrent: int = 64,
        requests_per_min: float | None = None,
        tokens_per_min: float | None = None,
        price: float = 0.0,
        price_per_call: float = 0.0,
        weight: float = 1.0,
        **proxy: Any,
    ) -> None:
        super().__init__(
            name,
            max_concurrent=max_concurrent,
            requests_per_min=requests_per_min,
            tokens_per_min=tokens_per_min,
            price=price,
            price_per_call=price_per_call,
            weight=weight,
        )
        self.models = _names(models)
        proxy.setdefault("rate_limiter_bucket_size", None)
        self.proxy = OpenAIChatProxy(base_url, api_key=api_key, max_concurrent=max_concurrent, **proxy)
        self.proxy._plan = _ONE_ATTEMPT
        _check_url(name, self.proxy._wire.endpoint)
        self._measured = bool(tokens_per_min or price)

    def serves(self, work: Work) -> bool:
        return work.kind in ("chat", "embeddings") and any(fnmatch.fnmatchcase(work.name, m) for m in self.models)

    def room(self) -> bool:
        gate = self.proxy._gate
        return super().room() and gate.waiting == 0 and gate.inflight < gate.limit

    async def execute(self, work: Work) -> Done:
        if work.kind == "embeddings":
            return Done(await self.proxy.embeddings(sentences=work.payload, model=work.name, **work.arguments))
        wanted = work.arguments.get("return_completion", False)
        if not self._measured or wanted:
            return Done(await self.proxy.chat_completion(work.payload, work.name, **work.arguments))
        answer = await self.proxy.chat_completion(work.payload, work.name, return_completion=True, **work.arguments)
        usage = getattr(answer, "usage", None)
        return Done(answer.choices[0].message.content, None if usage is None else float(usage.total_tokens))

    def stream(self, work: Work, left_s: float | None) -> AsyncGenerator[str, None]:
        return self.proxy.stream_chat_completion(work.payload, work.name, deadline_s=left_s, **work.arguments)

    async def aclose(self) -> None:
        await self.proxy.aclose()


class CallableSource(Source):
    """A function of the payload, sync (run in threads) or async, for tasks with its *tag*."""

    kind = "callable"

    def __init__(self, name: str, func: Callable[..., Any], *, tag: str = "default", **limits: Any) -> None:
        super().__init__(name, **limits)
        self.tag = tag
        self._func = func
        self._threads = ThreadGroup()
        self._async = inspect.iscoroutinefunction(code_of(func))

    def serves(self, work: Work) -> bool:
        return work.kind == "call" and work.name == self.tag

    def at_fault(self, exc: BaseException, verdict: Verdict) -> bool:
        # A function that cannot make sense of one payload does well with the next.
        known = isinstance(exc, OSError) or verdict.unsent or verdict.status is not None
        return known and super().at_fault(exc, verdict)

    async def execute(self, work: Work) -> Done:
        body = functools.partial(self._func, work.payload, **work.arguments)
        if self._async:
            return Done(await body())
        return Done(await self._threads.run(body, contextvars.copy_context()))


class RewardServiceSource(Source):
    """A reward service: tasks are lists of requests for its ``POST /score``. *rewards*: the rewards it has (globs)."""

    kind = "reward_service"

    def __init__(
        self,
        name: str,
        url: str,
        *,
        api_key: str | None = None,
        rewards: str | Sequence[str] = ("*",),
        timeout_s: float = 300.0,
        **limits: Any,
    ) -> None:
        super().__init__(name, **limits)
        self.rewards = _names(rewards)
        self.timeout_s = timeout_s
        endpoint = Endpoint(url, api_key)
        _check_url(name, endpoint)
        settings = TransportSettings(plain=url.startswith("http:"), proxy=endpoint.environment_proxy())
        self._wire = Wire(endpoint, Transport(settings), None, None)

    def serves(self, work: Work) -> bool:
        if work.kind != "score":
            return False
        wanted = {reward for request in work.payload for reward in request.get("required_rewards", ())}
        return all(any(fnmatch.fnmatchcase(reward, known) for known in self.rewards) for reward in wanted)

    async def execute(self, work: Work) -> Done:
        request = Request("/score", {"requests": work.payload, "timeout": self.timeout_s, **work.arguments})
        return Done(await self._wire.send(request, functools.partial(_scores, len(work.payload))))

    async def aclose(self) -> None:
        await self._wire.transport.aclose()


def _number(value: Any) -> float:
    """*value*, or nan (which no bound admits) when it is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else float("nan")


def _check_url(name: str, endpoint: Endpoint) -> None:
    """ConfigError now rather than at the first task."""
    try:
        endpoint.url("")
    except ConfigError as exc:
        raise ConfigError(f"source {name!r}: {exc}") from None


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise ConfigError(f"names of models and rewards are strings or globs in a list, got {names!r}")
    return tuple(listed)


def _scores(expected: int, reply: Reply) -> Scores:
    try:
        body = orjson.loads(reply.body)
        scores = Scores(list(body["results"]), list(body.get("errors") or [{}] * expected))
    except (ValueError, LookupError, TypeError):
        raise invalid_answer(reply, "a /score answer with `results`") from None
    if len(scores.results) != expected or len(scores.errors) != expected:
        raise invalid_answer(reply, f"{expected} results")
    return scores


async def close_all(sources: Sequence[Source]) -> None:
    """Close every source, whatever the others do."""
    await asyncio.gather(*(source.aclose() for source in sources), return_exceptions=True)
