"""One proxy, any number of event loops, threads and processes; nothing is left open."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from qreward.client.openai import OpenAIChatProxy
from qreward.testing import eventually
from qreward.testing.judge import FakeJudge

HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture
def judge():
    with FakeJudge().in_thread() as judge:
        yield judge


def make(judge: FakeJudge, **settings: object) -> OpenAIChatProxy:
    return OpenAIChatProxy(judge.url, api_key="k", rate_limiter_bucket_size=None, **settings)


def test_one_loop_after_another(judge):
    """asyncio.run may be called again and again with one proxy, without closing it."""
    proxy = make(judge)
    assert [asyncio.run(proxy.chat_completion(HELLO, "m")) for _ in range(3)] == ["echo:hello"] * 3


def test_loops_in_threads_at_once(judge):
    """Several threads with loops of their own share a proxy and its limit."""
    judge.faults.set(latency_s=0.01)
    proxy = make(judge, max_concurrent=3)
    batch = [HELLO] * 12

    def work(_: int) -> list[str]:
        return asyncio.run(proxy.batch_chat_completion(batch, "m"))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, range(4)))
    assert results == [["echo:hello"] * 12] * 4
    assert judge.counters.max_inflight <= 3


def test_connections_close_with_their_loop(judge):
    """When asyncio.run returns, the server has lost the connection, and nobody warns about anything unclosed."""
    proxy = make(judge)
    messages: list[str] = []

    async def main(proxy: OpenAIChatProxy) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(context["message"]))
        await proxy.chat_completion(HELLO, "m")

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main(proxy))
        held = proxy._wire.transport._held[0]
        assert held.session.closed
        assert asyncio.run(proxy.chat_completion(HELLO, "m")) == "echo:hello"
        del held, proxy
        gc.collect()
    assert [str(w.message) for w in caught] == []
    assert messages == []


def test_a_forgotten_proxy_closes_its_connections(judge):
    """Collecting the proxy while its loop runs closes the connections there."""

    async def main() -> None:
        proxy = make(judge)
        await proxy.chat_completion(HELLO, "m")
        connector = proxy._wire.transport._held[0].session.connector
        del proxy
        gc.collect()
        while not connector.closed:
            await asyncio.sleep(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(main())


def test_a_loop_that_is_closed_without_ceremony(judge):
    """A loop closed with connections open, by old-fashioned code, hinders neither the next loop nor closing."""
    proxy = make(judge)
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(proxy.chat_completion(HELLO, "m")) == "echo:hello"
    loop.close()

    async def main() -> None:
        assert await proxy.chat_completion(HELLO, "m") == "echo:hello"
        assert len(proxy._wire.transport._held) == 1
        await proxy.aclose()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert [str(w.message) for w in caught if "Unclosed" in str(w.message)] == []


def test_forgotten_after_such_a_loop(judge):
    """A proxy that is collected after its loop was closed without ceremony says nothing about unclosed sessions."""
    proxy = make(judge)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(proxy.chat_completion(HELLO, "m"))
    loop.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del proxy
        gc.collect()
    assert [str(w.message) for w in caught if "Unclosed" in str(w.message)] == []


def test_closing_from_another_loop(judge):
    """aclose in one loop closes what another loop, in another thread, has open."""
    proxy = make(judge)
    ready, done = threading.Event(), threading.Event()

    async def serve() -> bool:
        await proxy.chat_completion(HELLO, "m")
        connector = proxy._wire.transport._held[0].session.connector
        ready.set()
        await eventually(lambda: connector.closed)
        done.set()
        return await proxy.chat_completion(HELLO, "m") == "echo:hello"

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: asyncio.run(serve()))
        assert ready.wait(10)
        asyncio.run(proxy.aclose())
        assert done.wait(10)
        assert other.result(10)


@pytest.mark.parametrize("loop_of_child", ["asyncio.new_event_loop()", "loop"])
def test_after_fork(judge, loop_of_child):
    """A forked child opens connections of its own, also on an inherited loop, and the parent's keep working."""
    script = f"""
        import asyncio, os, warnings
        warnings.simplefilter("error")
        from qreward.client.openai import OpenAIChatProxy
        proxy = OpenAIChatProxy({judge.url!r}, api_key="k", rate_limiter_bucket_size=None)
        call = lambda: proxy.chat_completion([{{"role": "user", "content": "hello"}}], "m")
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(call()) == "echo:hello"
        child = os.fork()
        if child == 0:
            asyncio._set_running_loop(None)
            asyncio.set_event_loop(None)
            assert {loop_of_child}.run_until_complete(call()) == "echo:hello"
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert loop.run_until_complete(call()) == "echo:hello"
        loop.run_until_complete(proxy.aclose())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert judge.counters.ok == 3
    assert len(judge.counters.connections) == 2


def test_importing_the_client_package_is_light():
    """`import qreward.client` loads neither openai nor aiohttp."""
    code = (
        "import sys, qreward.client; print([m for m in ('openai', 'aiohttp', 'httpx', 'httpx2') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
