"""Plain aiohttp, written by hand for one scenario each: what a client cannot beat by much."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson
from load import Load, messages

_HEADERS = {"Content-Type": "application/json", "Authorization": "Bearer key"}
_TRIES = 30


class Refused(Exception):
    """The server answered with an error status."""

    def __init__(self, status: int, retry_after_s: float | None) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.retry_after_s = retry_after_s


def _session(load: Load) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=2 * load.callers),
        timeout=aiohttp.ClientTimeout(total=load.timeout_s),
    )


async def _post(session: aiohttp.ClientSession, url: str, prompt: str) -> str:
    body = orjson.dumps({"model": "m", "messages": messages(prompt), "temperature": 0.0})
    async with session.post(url + "/chat/completions", data=body, headers=_HEADERS) as answer:
        raw = await answer.read()
        if answer.status != 200:
            after = answer.headers.get("Retry-After")
            raise Refused(answer.status, float(after) if after else None)
        text: str = orjson.loads(raw)["choices"][0]["message"]["content"]
        return text


async def once(load: Load, prompts: Sequence[str]) -> list[Any]:
    """One attempt per call, the endpoints in turn."""
    async with _session(load) as session:
        urls = load.urls
        return await load.run(prompts, lambda i, prompt: _post(session, urls[i % len(urls)], prompt))


async def retry(load: Load, prompts: Sequence[str]) -> list[Any]:
    """Up to 30 attempts, after `Retry-After` or 50 ms, doubling."""
    async with _session(load) as session:

        async def call(index: int, prompt: str) -> str:
            wait_s = 0.05
            for _ in range(_TRIES - 1):
                try:
                    return await _post(session, load.urls[0], prompt)
                except (Refused, aiohttp.ClientError) as error:
                    await asyncio.sleep(getattr(error, "retry_after_s", None) or wait_s)
                wait_s = min(2.0, 2.0 * wait_s)
            return await _post(session, load.urls[0], prompt)

        return await load.run(prompts, call)


async def sized(load: Load, prompts: Sequence[str]) -> list[Any]:
    """No more at once than the server takes."""
    room = asyncio.Semaphore(load.options["capacity"])
    async with _session(load) as session:

        async def call(_: int, prompt: str) -> str:
            async with room:
                return await _post(session, load.urls[0], prompt)

        return await load.run(prompts, call)


async def paced(load: Load, prompts: Sequence[str]) -> list[Any]:
    """Evenly spaced at the rate that the server allows."""
    began = time.perf_counter()
    async with _session(load) as session:

        async def call(index: int, prompt: str) -> str:
            wait_s = began + index / load.options["rate"] - time.perf_counter()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            return await _post(session, load.urls[0], prompt)

        return await load.run(prompts, call)


async def hedged(load: Load, prompts: Sequence[str]) -> list[Any]:
    """A duplicate after `hedge_s`; the first answer counts, the other request is cancelled."""
    async with _session(load) as session:

        async def call(index: int, prompt: str) -> str:
            both = {asyncio.ensure_future(_post(session, load.urls[0], prompt))}
            done, _ = await asyncio.wait(both, timeout=load.options["hedge_s"])
            if not done:
                both.add(asyncio.ensure_future(_post(session, load.urls[0], prompt)))
                done, late = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for task in late:
                    task.cancel()
            return done.pop().result()

        return await load.run(prompts, call)


async def failover(load: Load, prompts: Sequence[str]) -> list[Any]:
    """An endpoint that fails or times out once gets no call any more."""
    alive = list(load.urls)
    async with _session(load) as session:

        async def call(index: int, prompt: str) -> str:
            while True:
                url = alive[index % len(alive)]
                try:
                    return await _post(session, url, prompt)
                except (aiohttp.ClientError, TimeoutError):
                    if url in alive:
                        if len(alive) == 1:
                            raise
                        alive.remove(url)

        return await load.run(prompts, call)
