"""The client in a trainer's process: changing loops, forks, pickles, Ctrl-C, and the end."""

import asyncio
import copy
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from reward_service.client import AsyncRewardClient, RewardClient
from reward_service.testing.fake_server import Fault

pytestmark = pytest.mark.timeout(120)


def script(source, *arguments):
    """Start Python on *source* with every warning an error, unclosed resources included."""
    code = "from reward_service.client import *\nimport asyncio, os, sys, threading\nurl = sys.argv[1]\n"
    code += "ask = lambda text: [RewardRequest([(text, b'image')], ['clip'])]\n" + textwrap.dedent(source)
    # Forking a process with threads is what trainers do; newer Pythons warn about it.
    command = [
        sys.executable,
        "-W",
        "error",
        "-W",
        "ignore:.*fork:DeprecationWarning",
        "-c",
        code,
    ]
    return subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process):
    """Its output, once it has ended by itself with 0 and without a word on stderr."""
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    return out.split()


def test_importing_the_client_imports_nothing_heavy():
    """The SDK lives in trainers' environments: no server, no frameworks."""
    heavy = "torch ray fastapi starlette uvicorn transformers pydantic numpy yaml msgspec"
    process = script(f"print([name for name in '{heavy}'.split() if name in sys.modules])", "-")
    assert finished(process) == ["[]"]


def test_msgpack_without_msgspec_is_refused_with_the_remedy():
    """At construction; JSON needs nothing."""
    out = finished(
        script(
            """
            sys.modules["msgspec"] = None
            RewardClient("http://localhost:1")
            try:
                RewardClient("http://localhost:1", body_format="msgpack")
            except ValueError as error:
                print(error)
            """,
            "-",
        )
    )
    assert "pip install msgspec" in " ".join(out)


def test_one_async_client_serves_many_loops(server, asking):
    """asyncio.run twice, and a third time in another thread, over one connection."""
    client = AsyncRewardClient(server.url)
    answers = [asyncio.run(client.score([asking("four")])) for _ in range(2)]
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(client.score([asking("four")]))))
    thread.start()
    thread.join()
    asyncio.run(client.close())
    assert answers == [[{"clip": {"clip": 4.0}}]] * 3
    assert len({post.port for post in server.posts}) == 1


async def test_the_blocking_client_works_inside_a_running_loop(server, asking):
    """As in a notebook: it blocks that loop, but does not hang."""
    with RewardClient(server.url) as client:
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]


@pytest.mark.parametrize("duplicate", [lambda c: pickle.loads(pickle.dumps(c)), copy.deepcopy, copy.copy])
def test_a_copy_makes_its_own_connections(server, asking, duplicate):
    """Settings travel; sockets and threads stay behind."""
    with RewardClient([server.url], 50.0, headers={"X-Team": "a"}, coalesce_ms=1) as client:
        client.score([asking("a")])
        with duplicate(client) as twin:
            assert repr(twin) == repr(client)
            assert twin.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
        assert client.score([asking("four")]) == [{"clip": {"clip": 4.0}}]
    assert [post.headers["X-Team"] for post in server.posts] == ["a", "a", "a"]
    assert server.posts[0].port != server.posts[1].port


def test_a_fork_gets_its_own_loop_and_sockets(server):
    """Used before the fork, in the child, and in the parent afterwards; nobody warns at the end."""
    out = finished(
        script(
            """
            client = RewardClient(url)
            before = client.score(ask("before"))
            child = os.fork()
            if child == 0:
                client.score(ask("child"))
                client.close()
                sys.exit(0)
            _, status = os.waitpid(child, 0)
            client.score(ask("after"))
            print(os.waitstatus_to_exitcode(status))
            """,
            server.url,
        )
    )
    assert out == ["0"]
    before, child, after = sorted(server.posts, key=lambda post: ["before", "child", "after"].index(post.texts[0]))
    assert before.port == after.port != child.port


def test_a_child_may_drop_what_it_inherited(server):
    """Collecting the copy of the parent's client warns about nothing and does not disturb the parent."""
    out = finished(
        script(
            """
            import gc
            client = RewardClient(url)
            client.score(ask("a"))
            child = os.fork()
            if child == 0:
                del client
                gc.collect()
                sys.exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            client.score(ask("b"))
            """,
            server.url,
        )
    )
    assert out == ["0"]
    assert len({post.port for post in server.posts}) == 1


def test_a_fork_during_a_call_and_a_child_that_never_calls(server):
    """The child of a busy parent can score, and one that does nothing exits quietly."""
    server.faults.append(Fault(gate=True))
    process = script(
        """
        client = RewardClient(url)
        call = threading.Thread(target=lambda: client.score(ask("busy")))
        call.start()
        sys.stdin.readline()
        for job in (lambda: client.score(ask("child")), lambda: None):
            child = os.fork()
            if child == 0:
                job()
                sys.exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        call.join()
        """,
        server.url,
    )
    server.wait_for(lambda s: len(s.posts) == 1)
    process.stdin.write("fork\n")
    process.stdin.flush()
    server.wait_for(lambda s: len(s.posts) == 2)
    server.open_gate()
    assert finished(process) == ["0", "0"]


def test_an_open_client_at_exit_is_silent(server):
    """Neither client is closed: no warning, no hang."""
    out = finished(
        script(
            """
            client, twin = RewardClient(url), AsyncRewardClient(url)
            client.score(ask("a"))
            print(asyncio.run(twin.score(ask("four")))[0]["clip"]["clip"])
            """,
            server.url,
        )
    )
    assert out == ["4.0"]


def test_the_background_thread_ends_before_the_interpreter(server):
    """Handlers that were registered before the import run last, and find no thread of ours."""
    source = "import atexit, threading\n"
    source += "atexit.register(lambda: print([thread.name for thread in threading.enumerate()]))\n"
    source += "from reward_service.client import RewardClient\nimport sys\n"
    source += "print(RewardClient(sys.argv[1]).rewards())"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", source, server.url], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.splitlines(), done.stderr) == (["['clip', 'ocr']", "['MainThread']"], "")


def test_a_dropped_client_closes_its_connections():
    """The garbage collector is enough: the server's end of the connection sees the end."""
    answer = b'{"status": "ok"}'
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        clients = [RewardClient(f"http://127.0.0.1:{listener.getsockname()[1]}")]
        call = threading.Thread(target=lambda: clients[0].health())
        call.start()
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(20)
            assert connection.recv(4096).startswith(b"GET /health")
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            call.join()
            clients.clear()
            gc.collect()
            assert connection.recv(1) == b""


def test_exit_does_not_wait_for_calls_on_their_way(server):
    """A daemon thread and an abandoned task wait for a server that never answers."""
    server.faults += [Fault(hang=True)] * 2
    process = script(
        """
        client, twin = RewardClient(url), AsyncRewardClient(url)
        threading.Thread(target=lambda: client.score(ask("a")), daemon=True).start()
        async def leave():
            task = asyncio.ensure_future(twin.score(ask("b")))
            await asyncio.sleep(0)
            await asyncio.to_thread(sys.stdin.readline)
            task.cancel()
        asyncio.run(leave())
        """,
        server.url,
    )
    server.wait_for(lambda s: len(s.posts) == 2)
    _, err = process.communicate("leave\n", timeout=60)
    assert process.returncode == 0, err


def test_ctrl_c_ends_a_blocking_call_and_its_post(server):
    """KeyboardInterrupt is raised at once, and the server sees the client go while the process lives on."""
    server.faults.append(Fault(hang=True))
    process = script(
        """
        client = RewardClient(url)
        try:
            client.score(ask("a"))
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(client.score(ask("four"))[0]["clip"]["clip"], flush=True)
        sys.stdin.readline()
        """,
        server.url,
    )
    server.wait_for(lambda s: len(s.posts) == 1)
    os.kill(process.pid, signal.SIGINT)
    # Before the process ends, which would close every connection anyway.
    server.wait_for(lambda s: s.aborted == 1 and len(s.posts) == 2)
    assert finished(process) == ["interrupted", "4.0"]
