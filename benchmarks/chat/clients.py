"""The clients that are compared. QReward 0.1.7 runs those of qreward too, so they use what both have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import bare
from load import Load, messages

Client = Callable[[Load, Sequence[str]], Awaitable[list[Any]]]


async def openai(load: Load, prompts: Sequence[str]) -> list[Any]:
    """AsyncOpenAI as it comes: httpx, two retries; the endpoints in turn."""
    from openai import AsyncOpenAI

    clients = [AsyncOpenAI(api_key="key", base_url=url, timeout=load.timeout_s) for url in load.urls]

    async def call(index: int, prompt: str) -> Any:
        chat = clients[index % len(clients)].chat.completions
        answer = await chat.create(model="m", messages=messages(prompt), temperature=0.0)
        return answer.choices[0].message.content

    try:
        return await load.run(prompts, call)
    finally:
        for client in clients:
            await client.close()


def _proxy(load: Load, url: str, rate: float = 1e9) -> Any:
    from qreward.client import OpenAIChatProxy

    return OpenAIChatProxy(
        url,
        api_key="key",
        max_concurrent=2 * load.callers if "hedge_s" in load.options else load.callers,
        rate_limiter_bucket_size=rate,
        timeout=load.timeout_s,
    )


async def proxy(load: Load, prompts: Sequence[str]) -> list[Any]:
    """`OpenAIChatProxy.chat_completion`; no rate of our own."""
    async with _proxy(load, load.urls[0]) as one:
        return await load.run(prompts, lambda _, prompt: one.chat_completion(messages(prompt), "m"))


async def batch(load: Load, prompts: Sequence[str]) -> list[Any]:
    """`OpenAIChatProxy.batch_chat_completion`; single calls cannot be timed."""
    async with _proxy(load, load.urls[0]) as one:
        results: list[Any] = await one.batch_chat_completion([messages(prompt) for prompt in prompts], "m")
        return results


async def told(load: Load, prompts: Sequence[str]) -> list[Any]:
    """`OpenAIChatProxy` that is told the rate of the server."""
    async with _proxy(load, load.urls[0], rate=load.options["rate"]) as one:
        return await load.run(prompts, lambda _, prompt: one.chat_completion(messages(prompt), "m"))


def scheduled(**settings: Any) -> Client:
    """`schedule` around `OpenAIChatProxy.chat_completion`."""

    async def run(load: Load, prompts: Sequence[str]) -> list[Any]:
        from qreward.utils import schedule

        async with _proxy(load, load.urls[0]) as one:

            @schedule(**settings)
            async def judge(prompt: str) -> Any:
                return await one.chat_completion(messages(prompt), "m")

            return await load.run(prompts, lambda _, prompt: judge(prompt))

    return run


def _manager(load: Load) -> Any:
    from qreward.client import OpenAIChatProxyManager

    manager = OpenAIChatProxyManager()
    for index, url in enumerate(load.urls):
        manager.add_proxy(f"endpoint {index}", _proxy(load, url))
    return manager


async def manager(load: Load, prompts: Sequence[str]) -> list[Any]:
    """`OpenAIChatProxyManager.chat_completion`."""
    async with _manager(load) as several:
        return await load.run(prompts, lambda _, prompt: several.chat_completion(messages(prompt), "m"))


async def selected(load: Load, prompts: Sequence[str]) -> list[Any]:
    """`OpenAIChatProxyManager.select_proxy` before every call, as programs for 0.1.7 do."""
    several = _manager(load)
    try:
        return await load.run(prompts, lambda _, prompt: several.select_proxy().chat_completion(messages(prompt), "m"))
    finally:
        await several.close()


CLIENTS: dict[str, Client] = {
    "aiohttp": bare.once,
    "aiohttp-retry": bare.retry,
    "aiohttp-sized": bare.sized,
    "aiohttp-paced": bare.paced,
    "aiohttp-hedged": bare.hedged,
    "aiohttp-failover": bare.failover,
    "openai": openai,
    "proxy": proxy,
    "batch": batch,
    "told": told,
    "scheduled": scheduled(),
    # 0.1.7 sends no duplicate without retries, and waits retry_interval before it.
    "hedged": scheduled(hedged_request_time=0.15, retry_times=3, retry_interval=0.15),
    "hedged-p99": scheduled(hedged_request_time="p99"),
    "hedged-p95": scheduled(hedged_request_time="p95"),
    "manager": manager,
    "selected": selected,
}
