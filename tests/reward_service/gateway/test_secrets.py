"""Paths and tracebacks of the server stay on the server, unless the config says otherwise."""

from __future__ import annotations

import pytest

PATH = "/srv/models/hidden/weights.bin"
TALE = (
    "loading failed\nTraceback (most recent call last):\n"
    f'  File "{PATH}", line 3, in load\n    open(secret)\nFileNotFoundError: {PATH}'
)


async def everything_said(caller, item) -> str:
    answers = [
        await caller.score(item(f"raise:{TALE}"), item(f"raise:no file at '{PATH}'"), item("x", "broken")),
        await caller.score({"history": [{"text": "x", "video_path": "/etc/passwd"}], "required_rewards": ["s"]}),
        await caller.score(item("exit")),
        await caller.get("/health"),
        await caller.get("/rewards"),
        await caller.get("/openapi.json"),
        await caller.post({"requests": 1}),
    ]
    return "\n".join(answer.raw.decode() for answer in answers)


@pytest.fixture
def rewards(reward):
    return reward(), reward("broken", params={"fail": TALE}, max_start_attempts=1)


async def test_nothing_about_the_servers_files_is_said(serve, rewards, item) -> None:
    """Errors of items and reasons in /health keep their meaning and lose paths and tracebacks."""
    async with serve(*rewards) as caller:
        said = await everything_said(caller, item)
    for secret in ("Traceback", "/srv", "models/hidden", "site-packages", "/workers/", "line 3"):
        assert secret not in said
    assert "no file at '…/weights.bin'" in said
    assert "RuntimeError: loading failed" in said
    assert "FileNotFoundError" in said


async def test_expose_tracebacks_shows_them(serve, rewards, item) -> None:
    """For those who debug their own service: item errors and /health carry the whole story."""
    async with serve(*rewards, server={"expose_tracebacks": True}) as caller:
        answer = await caller.score(item("raise"))
        assert "Traceback (most recent call last)" in answer.errors[0]["s"]
        assert "scorers.py" in answer.errors[0]["s"]
        said = await everything_said(caller, item)
        (replica,) = (await caller.get("/health")).body["details"]["broken"]["replicas"]
    assert PATH in said
    assert "Traceback (most recent call last)" in replica["traceback"]


async def test_no_file_of_the_server_reaches_a_client_through_a_malformed_request(serve, item) -> None:
    """Internal errors are logged; the client learns that there was one, and nothing else."""
    async with serve() as caller:

        def broken(*_: object) -> None:
            raise RuntimeError(f"secret {PATH}")

        caller.gateway.groups["s"].submit = broken
        answer = await caller.score(item())
        assert (answer.status, answer.detail) == (500, "internal error; the server's log has the cause")
        del caller.gateway.groups["s"].submit
        assert (await caller.score(item())).results == [{"s": {"value": 1.0}}]
