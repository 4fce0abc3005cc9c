"""One client carries one load in this process, in whichever interpreter; prints its measurements as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clients import CLIENTS
from load import Load

_PAD = "Judge this answer on a scale of one to ten. " * 4
_WARM_UP = 8


async def measure(order: dict[str, Any]) -> dict[str, Any]:
    """Run *order* (client, urls, calls, callers, options, at_most_s) after a small load that imports and compiles."""
    client = CLIENTS[order["client"]]
    prompts = [f"{index}: {_PAD}" for index in range(order["calls"])]
    load = Load(order["urls"], order["callers"], order["options"])
    await client(load, prompts[:_WARM_UP])
    for url in load.urls:
        urllib.request.urlopen(url.removesuffix("v1") + "admin/reset", timeout=30).close()  # noqa: ASYNC210 - before the clock runs
    load.latencies_s.clear()
    cpu, waited, began = _cpu_s(), _waited_s(), time.perf_counter()
    async with asyncio.timeout(order["at_most_s"]):
        results = await client(load, prompts)
    wall_s = time.perf_counter() - began
    found = {
        "wall_s": round(wall_s, 3),
        "rps": round(len(prompts) / wall_s, 1),
        "cpu_us": round(1e6 * (_cpu_s() - cpu) / len(prompts), 1),
        "waited_share": round((_waited_s() - waited) / wall_s, 3),
        "errors": _errors(prompts, results),
    }
    if load.latencies_s:
        latencies = sorted(load.latencies_s)
        found["p50_ms"] = round(1e3 * latencies[len(latencies) // 2], 1)
        found["p99_ms"] = round(1e3 * latencies[int(0.99 * len(latencies))], 1)
    return found


def _errors(prompts: Sequence[str], results: Sequence[Any]) -> dict[str, int]:
    errors: Counter[str] = Counter()
    for prompt, result in zip(prompts, results, strict=True):
        if isinstance(result, BaseException):
            errors[type(result).__name__] += 1
        elif result != f"echo:{prompt}":
            errors["wrong answer"] += 1
    return dict(errors)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _waited_s() -> float:
    """Seconds that the threads of this process could have run and had no core."""
    return sum(int(path.read_text().split()[1]) for path in Path("/proc/self/task").glob("*/schedstat")) / 1e9


def main() -> None:
    """The order is the only argument, as JSON."""
    logging.disable()  # 0.1.7 logs every failure
    order = json.loads(sys.argv[1])
    try:
        found = asyncio.run(measure(order))
    except TimeoutError:
        found = {"failed": f"not done after {order['at_most_s']:g} s"}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
