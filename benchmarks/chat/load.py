"""The load that every client carries: so many callers, each with one call at a time, and when each call took place."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Call = Callable[[int, str], Awaitable[Any]]


@dataclass
class Load:
    """Endpoints, callers and options; `latencies_s` fills while `run` works."""

    urls: list[str]
    callers: int
    options: dict[str, Any]
    latencies_s: list[float] = field(default_factory=list)

    @property
    def timeout_s(self) -> float:
        """For one attempt."""
        return float(self.options.get("timeout_s", 60.0))

    async def run(self, prompts: Sequence[str], call: Call) -> list[Any]:
        """``await call(index, prompt)`` for all, `callers` at a time; a failure is its exception."""
        results: list[Any] = [None] * len(prompts)
        turns = iter(range(len(prompts)))

        async def caller() -> None:
            for index in turns:
                began = time.perf_counter()
                try:
                    results[index] = await call(index, prompts[index])
                except Exception as error:
                    results[index] = error
                self.latencies_s.append(time.perf_counter() - began)

        await asyncio.gather(*(caller() for _ in range(self.callers)))
        return results


def messages(prompt: str) -> list[dict[str, str]]:
    """A chat of one message."""
    return [{"role": "user", "content": prompt}]
