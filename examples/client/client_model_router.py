"""Routes by model name: exact names first, then the most specific pattern.

python examples/client/client_model_router.py
"""

import asyncio

from qreward.client import OpenAIChatProxy, OpenAIChatProxyManager
from qreward.testing import FakeJudge


async def main() -> None:
    async with FakeJudge() as small, FakeJudge() as large, FakeJudge() as rest:
        names = {"small": small, "large": large, "rest": rest}
        proxies = {name: OpenAIChatProxy(judge.url, api_key="k") for name, judge in names.items()}
        manager = OpenAIChatProxyManager()
        for name, proxy in proxies.items():
            manager.add_proxy(name, proxy)
        manager.register_model_route("*", {"rest": proxies["rest"]})
        manager.register_model_route("qwen*", {"small": proxies["small"]})
        manager.register_model_route("qwen3-vl-72b", {"large": proxies["large"]})

        for model in ("qwen3-vl-72b", "qwen3-vl-7b", "llama-4"):
            before = {name: judge.counters.received for name, judge in names.items()}
            await manager.chat_completion([{"role": "user", "content": "Rate the poem."}], model)
            served = [name for name, judge in names.items() if judge.counters.received > before[name]]
            print(f"{model:14} -> {', '.join(served)}")
        for route in manager.list_routes():
            print("route", route)
        await manager.close()


if __name__ == "__main__":
    asyncio.run(main())
