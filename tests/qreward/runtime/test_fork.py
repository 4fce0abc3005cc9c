"""A forked child starts afresh: no inherited calls, no inherited locks."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_calls_in_flight_at_the_fork_hold_no_places_in_the_child() -> None:
    """A proxy whose slots are all taken at the fork serves the child at once, and the parent keeps its calls."""
    out = run("""
        import asyncio, os
        from qreward.client import OpenAIChatProxy
        from qreward.testing import FakeJudge, eventually

        def ask(proxy, text):
            return proxy.chat_completion([{"role": "user", "content": text}], "m")

        with FakeJudge(latency_s=0.3).in_thread() as judge:
            proxy = OpenAIChatProxy(judge.url, api_key="k", max_concurrent=2, rate_limiter_bucket_size=None)

            async def main():
                calls = [asyncio.create_task(ask(proxy, "parent")) for _ in range(2)]
                await eventually(lambda: judge.counters.inflight == 2)
                pid = os.fork()
                if pid == 0:
                    return None
                answers = await asyncio.gather(*calls)
                os.waitpid(pid, 0)
                return answers

            loop = asyncio.new_event_loop()
            answers = None
            pid_before = os.getpid()
            try:
                answers = loop.run_until_complete(main())
            finally:
                if os.getpid() != pid_before:
                    asyncio._set_running_loop(None)
                    print(asyncio.run(asyncio.wait_for(ask(proxy, "child"), 20)), flush=True)
                    os._exit(0)
            print(*answers)
            loop.run_until_complete(proxy.aclose())
            loop.close()
    """)
    assert out == ["echo:child", "echo:parent", "echo:parent"]


def test_a_lock_held_at_the_fork_does_not_block_the_child() -> None:
    """Gates, fleets and pools are usable in a child although another thread of the parent held their locks."""
    out = run("""
        import os
        from qreward.client.failover import Fleet
        from qreward.client.pool.dispatch import Dispatcher
        from qreward.runtime.gate import Gate
        from qreward.runtime.registry import Registry

        things = [Gate("k"), Registry(), Fleet(lambda proxy, others: None), Dispatcher(False)]
        for thing in things:
            thing._lock.acquire()
        pid = os.fork()
        if pid == 0:
            print(*(thing._lock.acquire(timeout=5) for thing in things), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
    """)
    assert out == ["True"] * 4
