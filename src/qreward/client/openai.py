"""`OpenAIChatProxy`: calls to one OpenAI-compatible server under limits, with retries, in batches and as streams."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Self

from qreward.client.answers import (
    EmbeddingParser,
    alternative_embeddings_of,
    completion_of,
    content_of,
    embeddings_of,
    parsed_embeddings,
)
from qreward.client.batch import BatchCalls
from qreward.client.core import MAX_RETRIES, ProxyCore, log
from qreward.client.endpoint import Endpoint
from qreward.client.jobs import CollectJob, Job, StreamJob, content, same
from qreward.client.request import chat_request, embeddings_request
from qreward.client.tls import Verify
from qreward.client.transport import Transport, TransportSettings
from qreward.client.wire import Hook, Wire
from qreward.errors import ConfigError
from qreward.runtime.gate import Gate

__all__ = ["MAX_RETRIES", "OpenAIChatProxy"]

_DEFAULT_TIMEOUT_S = 60


class OpenAIChatProxy(ProxyCore, BatchCalls):
    """One OpenAI-compatible server.

    base_url: with the version, such as ``https://host/v1``. api_key: by default the variable ``OPENAI_API_KEY``;
        without either no Authorization header is sent.
    max_concurrent: attempts at once. rate_limiter_bucket_size, rate_limiter_bucket_period: attempts that start in any
        period of so many seconds; None = no limit. adaptive: lower both while the server pushes back.
    timeout: seconds for one attempt on the wire, waiting for a turn excluded; of a stream, for the silence before each
        piece. By default 60; `with_timeout` and the `timeout` of a call override it.
    chat_process_func: gets every ChatCompletion, and what it returns is used in its place.
    error_process_func: gets the exception of a failed entry of `batch_chat_completion`; what it returns is the entry.
    httpx_request_hook, httpx_response_hook: called with real httpx objects, sync or async; a changed URL or header
        reaches the wire.
    is_hack_embedding_method: the server answers embeddings with ``embeddings`` in place of ``data``. embedding_parser:
        gets the decoded body of any other shape and returns the list.
    verify_ssl: True, False, a file or folder of CA certificates, or an ssl.SSLContext. proxy: URL of an HTTP proxy; by
        default what the environment says. max_response_bytes bounds one response.

    Every call makes up to `MAX_RETRIES` attempts, by type of error: no 4xx but 408, 409, 425 and 429 is repeated, and
    ``Retry-After`` is obeyed. Failures are exceptions of `openai`. One proxy serves any number of loops and threads.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        debug: bool = False,
        max_concurrent: int = 64,
        chat_process_func: Callable[[Any], Any] | None = None,
        error_process_func: Callable[[BaseException], Any] | None = None,
        chat_process_fuc: Callable[[Any], Any] | None = None,
        error_process_fuc: Callable[[BaseException], Any] | None = None,
        timeout: float | None = None,
        rate_limiter_bucket_size: float | None = 50.0,
        rate_limiter_bucket_period: float = 1.0,
        httpx_request_hook: Hook | None = None,
        httpx_response_hook: Hook | None = None,
        is_hack_embedding_method: bool = False,
        verify_ssl: Verify = True,
        adaptive: bool = True,
        default_headers: Mapping[str, str] | None = None,
        embedding_parser: EmbeddingParser | None = None,
        proxy: str | None = None,
        max_response_bytes: int = 256 * 2**20,
    ) -> None:
        self.debug = debug
        self._api_key = self.get_openai_key() if api_key is None else api_key
        self._max_concurrent = _at_least_one(max_concurrent)
        self._rate = (rate_limiter_bucket_size, rate_limiter_bucket_period)
        self._adaptive = adaptive
        self._default_temperature: float | None = 0.0
        self._default_timeout = _DEFAULT_TIMEOUT_S if timeout is None else timeout
        self._default_chat_process_func = _renamed("chat_process_fuc", chat_process_fuc, chat_process_func)
        self._default_error_process_func = _renamed("error_process_fuc", error_process_fuc, error_process_func)
        self._is_hack_embedding = is_hack_embedding_method
        self._embedding_parser = embedding_parser
        endpoint = Endpoint(base_url, self._api_key, default_headers)
        self.endpoint_name = endpoint.shown
        self._gate = Gate(f"endpoint {endpoint.shown}", self._gate_spec())
        settings = TransportSettings(
            verify=verify_ssl,
            plain=base_url.startswith("http:"),
            proxy=proxy or endpoint.environment_proxy(),
            max_response_bytes=max_response_bytes,
        )
        self._wire = Wire(endpoint, Transport(settings), httpx_request_hook, httpx_response_hook)

    @staticmethod
    def get_openai_key() -> str | None:
        """The variable ``OPENAI_API_KEY``."""
        return os.environ.get("OPENAI_API_KEY")

    # -- settings, also while calls run ----------------------------------------------------------------------------

    def with_max_concurrent(self, max_concurrent: int) -> Self:
        """Allow so many attempts at once from now on; calls that wait are looked at again."""
        self._max_concurrent = _at_least_one(max_concurrent)
        self._gate.configure(self._gate_spec())
        return self

    def with_temperature(self, temperature: float | None) -> Self:
        """The temperature of calls that name none; None = leave it to the server."""
        self._default_temperature = temperature
        return self

    def with_timeout(self, timeout: float | None) -> Self:
        """Seconds for each attempt of calls that name no timeout; None = no limit."""
        self._default_timeout = timeout
        return self

    def with_error_process_func(self, error_process_func: Callable[[BaseException], Any] | None) -> Self:
        """What turns the exception of a failed entry of a batch into its result."""
        self._default_error_process_func = error_process_func
        return self

    def with_error_process_fuc(self, error_process_fuc: Callable[[BaseException], Any] | None) -> Self:
        """Deprecated spelling of `with_error_process_func`."""
        _warn_renamed("with_error_process_fuc")
        return self.with_error_process_func(error_process_fuc)

    @property
    def _room(self) -> int:
        return self._max_concurrent

    # -- chat --------------------------------------------------------------------------------------------------------

    async def chat_completion(
        self,
        messages: Any,
        model: str,
        *,
        return_completion: bool = False,
        priority: int = 5,
        deadline_s: float | None = None,
        stream: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The text of the first choice (str, or None where there is none).

        kwargs: every argument of ``chat.completions.create`` and any other field that the server knows; `timeout` in
        seconds per attempt. return_completion: the whole ChatCompletion (`n`, `logprobs`, `usage`...). priority: 0
        first to 9 last among the calls that wait. deadline_s: wall clock for everything, waiting included; raises
        DeadlineExceeded. stream: the text travels as a stream and is returned when it is complete.
        """
        request = chat_request(messages, model, kwargs, self._default_temperature, self._default_timeout)
        process = self._default_chat_process_func
        whole = return_completion or process is not None
        job: Job[Any] | CollectJob
        if stream and not whole:
            request.arguments["stream"] = True
            job = CollectJob(request)
        else:
            job = Job(request, completion_of, same) if whole else Job(request, content_of, content)
        if self.debug:
            log.debug("Begin chat_completion, model %s at %s", model, self.endpoint_name)
        value = await self._run(job, "chat_completion", priority, deadline_s)
        if self.debug:
            log.debug("End chat_completion, model %s at %s", model, self.endpoint_name)
        if not whole:
            return value
        if process is not None:
            value = process(value)
            if inspect.isawaitable(value):
                value = await value
        return value if return_completion else content(value)

    async def stream_chat_completion(
        self,
        messages: Any,
        model: str,
        *,
        priority: int = 5,
        deadline_s: float | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[str, None]:
        """The text of the first choice, piece by piece.

        Attempts are repeated until the first piece is there. Closing the generator (``aclose``, or the end of an
        ``async with contextlib.aclosing``) closes the connection. deadline_s bounds the whole stream, the consumer's
        time included.
        """
        kwargs["stream"] = True
        request = chat_request(messages, model, kwargs, self._default_temperature, self._default_timeout)
        if self.debug:
            log.debug("Stream model %s at %s", model, self.endpoint_name)
        pieces = self._stream_run(StreamJob(request), priority, deadline_s)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()

    # -- embeddings --------------------------------------------------------------------------------------------------

    async def embeddings(
        self,
        *,
        sentences: Any = None,
        model: str | None = None,
        extra_body: Any = None,
        priority: int = 5,
        deadline_s: float | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """A list of `openai.types.Embedding`, in the order of *sentences* (or what embedding_parser returns).

        kwargs: every argument of ``embeddings.create``; `timeout` in seconds per attempt.
        """
        arguments = {"input": sentences, "model": model, "extra_body": extra_body, **kwargs}
        request = embeddings_request(arguments, self._default_timeout)
        job: Job[list[Any]]
        if self._embedding_parser is not None:
            job = Job(request, parsed_embeddings(self._embedding_parser), same)
        elif self._is_hack_embedding:
            job = Job(request, alternative_embeddings_of, _embeddings)
        else:
            job = Job(request, embeddings_of, _data)
        if self.debug:
            log.debug("Begin embeddings, model %s at %s", model, self.endpoint_name)
        value = await self._run(job, "embeddings", priority, deadline_s)
        if self.debug:
            log.debug("End embeddings, model %s at %s", model, self.endpoint_name)
        return value

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        gate = getattr(self, "_gate", None)
        if gate is None:
            return f"<{type(self).__name__} not initialised>"
        return f"<{type(self).__name__} {self.endpoint_name} {gate.inflight} in flight, {gate.waiting} waiting>"


def _at_least_one(max_concurrent: int) -> int:
    if max_concurrent < 1:
        raise ConfigError(f"max_concurrent must be at least 1, got {max_concurrent}")
    return int(max_concurrent)


def _renamed(name: str, old: Any, new: Any) -> Any:
    if old is None:
        return new
    _warn_renamed(name)
    return old if new is None else new


def _warn_renamed(name: str) -> None:
    message = f"{name} is deprecated; use {name.replace('_fuc', '_func')}"
    warnings.warn(message, DeprecationWarning, stacklevel=4)


def _data(response: Any) -> Any:
    return response.data


def _embeddings(response: Any) -> Any:
    return response.embeddings
