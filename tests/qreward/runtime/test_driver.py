"""The driver: attempts, retries and the deadline, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from qreward.errors import CircuitOpenError
from qreward.events import Attempt, Call
from qreward.policy.backoff import Backoff
from qreward.policy.retry import RetryPolicy
from qreward.runtime import clock
from qreward.runtime.driver import Plan, drive
from qreward.runtime.gate import Gate
from qreward.runtime.spec import BreakerSpec, GateSpec
from qreward.testing import run_virtual


class Status(Exception):
    def __init__(self, code: int, retry_after: float | None = None) -> None:
        super().__init__(f"status {code}")
        self.status_code = code
        self.retry_after = retry_after


class Server:
    """Answers from a list: an exception is raised, anything else returned; remembers when it was called."""

    def __init__(self, *answers: object, delay: float = 0.0) -> None:
        self.answers = list(answers)
        self.delay = delay
        self.times: list[float] = []
        self.cancelled = 0

    async def __call__(self) -> object:
        self.times.append(clock.monotonic())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            await asyncio.sleep(self.delay)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if isinstance(answer, BaseException):
            raise answer
        return answer


def new_call() -> Call:
    return Call("k", "k", 5, clock.monotonic())


def retrying(times: int, base_s: float = 1.0) -> RetryPolicy:
    return RetryPolicy(times, Backoff(base_s=base_s), (BaseException,))


def run(plan: Plan, server: Callable[[], Awaitable[object]], gate: Gate | None = None) -> tuple[object, Call]:
    call = Call("k", "k", 5, 0.0)

    async def main() -> object:
        return await drive(plan, gate or Gate("k"), server, call)

    return run_virtual(main()), call


def test_one_attempt_when_nothing_is_asked_for() -> None:
    """A plain plan calls once and hands the value through."""
    server = Server("value")
    value, call = run(Plan(), server)
    assert (value, len(server.times), call.attempts) == ("value", 1, 1)


def test_the_exception_itself_is_raised() -> None:
    """The caller sees the attempt's own exception object."""
    error = ConnectionError("down")
    with pytest.raises(ConnectionError) as caught:
        run(Plan(), Server(error))
    assert caught.value is error


def test_retries_until_an_answer() -> None:
    """Two failures and an answer are three attempts, two retries, one value."""
    server = Server(ConnectionError("a"), Status(500), "value")
    value, call = run(Plan(retry=retrying(5)), server)
    assert (value, call.attempts, call.retries) == ("value", 3, 2)
    assert call.wait_s == pytest.approx(server.times[-1] - server.times[0])


def test_no_wait_after_the_last_failure() -> None:
    """The last failure is raised at the moment it happens."""
    server = Server(ConnectionError("down"))

    async def main() -> float:
        with pytest.raises(ConnectionError):
            await drive(Plan(retry=retrying(2, base_s=10)), Gate("k"), server, new_call())
        return clock.monotonic()

    ended = run_virtual(main())
    assert len(server.times) == 3
    assert ended == server.times[-1]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_client_errors_are_final(status: int) -> None:
    """A 4xx that a repetition cannot cure arrives once at the server."""
    server = Server(Status(status))
    with pytest.raises(Status):
        run(Plan(retry=retrying(5)), server)
    assert len(server.times) == 1


@pytest.mark.parametrize("error", [TypeError("x"), AttributeError("x"), NameError("x"), NotImplementedError("x")])
def test_programming_errors_are_final(error: Exception) -> None:
    """A bug is not repeated."""
    server = Server(error)
    with pytest.raises(type(error)):
        run(Plan(retry=retrying(5)), server)
    assert len(server.times) == 1


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_retried(status: int) -> None:
    """Statuses that a repetition can cure are retried."""
    value, call = run(Plan(retry=retrying(5)), Server(Status(status), "value"))
    assert (value, call.retries) == ("value", 1)


def test_retry_after_wins() -> None:
    """A server that asks for 7 seconds is left alone for 7 seconds."""
    server = Server(Status(429, retry_after=7.0), "value")
    run(Plan(retry=retrying(5, base_s=0.01)), server)
    assert 7.0 <= server.times[1] - server.times[0] < 9.0


def test_the_deadline_counts_everything() -> None:
    """Attempts, backoff and waits together end at the timeout, and the body is cancelled."""
    server = Server("late", delay=100.0)

    async def main() -> float:
        with pytest.raises(TimeoutError, match="execute more than 3 seconds"):
            await drive(Plan(timeout_s=3.0, retry=retrying(5)), Gate("k"), server, new_call())
        return clock.monotonic() - server.times[0]

    assert run_virtual(main()) == pytest.approx(3.0)
    assert server.cancelled == 1


def test_the_deadline_includes_the_wait_in_the_queue() -> None:
    """A call that never got a turn times out without reaching the server."""
    gate = Gate("k", GateSpec(concurrency=1))
    server = Server("value")

    async def main() -> None:
        gate.try_enter()
        with pytest.raises(TimeoutError):
            await drive(Plan(timeout_s=2.0), gate, server, new_call())

    run_virtual(main())
    assert server.times == []
    assert gate.waiting == 0


def test_a_timeout_of_the_body_is_its_own() -> None:
    """TimeoutError raised by the body is retried like any failure and keeps its message."""
    error = TimeoutError("from the body")
    with pytest.raises(TimeoutError, match="from the body"):
        run(Plan(timeout_s=50.0, retry=retrying(1)), Server(error))


def test_cancelling_the_caller_cancels_the_attempt() -> None:
    """A cancelled call is not retried, and its permit comes back."""
    gate = Gate("k", GateSpec(concurrency=1))
    server = Server("value", delay=100.0)

    async def main() -> None:
        task = asyncio.create_task(drive(Plan(retry=retrying(5)), gate, server, new_call()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run_virtual(main())
    assert (server.cancelled, len(server.times), gate.inflight) == (1, 1, 0)


def test_a_cancellation_that_leaks_out_of_the_body_is_a_failure() -> None:
    """CancelledError raised by the body although nobody cancelled the call is retried like any other failure."""
    value, call = run(Plan(retry=retrying(2)), Server(asyncio.CancelledError(), "value"))
    assert (value, call.retries) == ("value", 1)


def test_a_broken_server_is_not_hammered() -> None:
    """A hundred calls with five retries each send a broken server far fewer than 600 requests in the first second."""
    gate = Gate("k", GateSpec(retry_ratio=0.5))
    server = Server(ConnectionError("down"))

    async def one() -> None:
        with pytest.raises(ConnectionError):
            await drive(Plan(retry=retrying(5, base_s=0.01)), gate, server, new_call())

    async def main() -> None:
        await asyncio.gather(*(one() for _ in range(100)))

    run_virtual(main())
    first_second = [t for t in server.times if t < server.times[0] + 1.0]
    assert len(first_second) <= 100 + 50 + 10 + 10 + 1


def test_an_open_breaker_refuses_before_the_server_is_asked() -> None:
    """Once open, the server is not reached; the outcome of the call is `rejected`."""
    gate = Gate("k", GateSpec(breaker=BreakerSpec(threshold=2, recovery_s=30)))
    server = Server(ConnectionError("down"))

    async def main() -> Call:
        for _ in range(2):
            with pytest.raises(ConnectionError):
                await drive(Plan(), gate, server, new_call())
        call = new_call()
        with pytest.raises(CircuitOpenError):
            await drive(Plan(), gate, server, call)
        return call

    assert run_virtual(main()).outcome == "rejected"
    assert len(server.times) == 2


def test_a_retry_that_the_breaker_refuses_raises_the_cause() -> None:
    """When the breaker opens between the attempts of a call, the call raises what really happened."""
    gate = Gate("k", GateSpec(breaker=BreakerSpec(threshold=1, recovery_s=30)))
    error = ConnectionError("down")
    with pytest.raises(ConnectionError) as caught:
        run(Plan(retry=retrying(5)), Server(error), gate)
    assert caught.value is error
    assert isinstance(caught.value.__cause__, CircuitOpenError)


class Recorder:
    def __init__(self) -> None:
        self.steps: list[tuple[str, int, bool, str | None]] = []

    def call_started(self, call: Call) -> None: ...
    def call_ended(self, call: Call) -> None: ...

    def attempt_started(self, call: Call, attempt: Attempt) -> None:
        self.steps.append(("start", attempt.number, attempt.hedge, None))

    def attempt_ended(self, call: Call, attempt: Attempt) -> None:
        error = None if attempt.error is None else type(attempt.error).__name__
        self.steps.append(("end", attempt.number, attempt.hedge, error))


def test_an_observer_sees_every_attempt() -> None:
    """Each attempt is announced when it starts and when it ends, with its error."""
    recorder = Recorder()
    server = Server(ConnectionError("a"), "value")

    async def main() -> object:
        return await drive(Plan(retry=retrying(1)), Gate("k"), server, new_call(), recorder)

    run_virtual(main())
    assert recorder.steps == [
        ("start", 1, False, None),
        ("end", 1, False, "ConnectionError"),
        ("start", 2, False, None),
        ("end", 2, False, None),
    ]


def test_an_observer_that_raises_harms_nobody() -> None:
    """Errors of an observer are logged; the call goes on."""

    class Broken(Recorder):
        def attempt_started(self, call: Call, attempt: Attempt) -> None:
            raise ValueError("observer")

    async def main() -> object:
        return await drive(Plan(), Gate("k"), Server("value"), new_call(), Broken())

    assert run_virtual(main()) == "value"
