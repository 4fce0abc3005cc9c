"""The breaker against a model of its promises."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qreward.policy.breaker import Breaker

THRESHOLD, RECOVERY_S, WINDOW_S, PROBES = 3, 10.0, 30.0, 2


def run(breaker: Breaker, now: float, *outcomes: str) -> None:
    """Calls one after another at *now*, with these outcomes."""
    for outcome in outcomes:
        generation = breaker.admit(now)
        assert generation is not None
        getattr(breaker, outcome)(now, generation)


def test_opens_after_the_threshold_and_not_before() -> None:
    """Two failures and a success start the count again; three in a row open."""
    breaker = Breaker(THRESHOLD, RECOVERY_S)
    run(breaker, 0.0, "failure", "failure", "success", "failure", "failure")
    assert breaker.state(0.0) == "closed"
    run(breaker, 0.0, "failure")
    assert (breaker.state(0.0), breaker.admit(0.0)) == ("open", None)
    assert breaker.retry_after(4.0) == 6.0


def test_opens_on_a_share_of_failures() -> None:
    """Alternating failures never come in a row and open the breaker all the same."""
    breaker = Breaker(THRESHOLD, RECOVERY_S)
    for i in range(10):
        run(breaker, float(i), "success" if i % 2 else "failure")
    assert breaker.state(9.0) == "closed"
    run(breaker, 10.0, "failure")
    assert breaker.state(10.0) == "open"


def test_a_share_below_the_rate_stays_closed() -> None:
    """Two failures in every five calls are below a rate of one half, for ever."""
    breaker = Breaker(THRESHOLD, RECOVERY_S, failure_rate=0.5)
    for i in range(1000):
        run(breaker, i * 0.1, "failure", "success", "success", "failure", "success")
    assert breaker.state(100.0) == "closed"


def test_the_share_needs_as_many_calls_as_it_is_told() -> None:
    """With min_calls=4 the second failure among four calls opens; a threshold in a row is not needed."""
    breaker = Breaker(THRESHOLD, RECOVERY_S, min_calls=4)
    run(breaker, 0.0, "failure", "success", "success")
    assert breaker.state(0.0) == "closed"
    run(breaker, 0.0, "failure")
    assert breaker.state(0.0) == "open"


def test_old_failures_leave_the_window() -> None:
    """Failures that are older than the window do not count towards the share."""
    breaker = Breaker(THRESHOLD, RECOVERY_S, window_s=WINDOW_S)
    for i in range(40):
        run(breaker, i * 10.0, "success" if i % 2 else "failure")
        assert breaker.state(i * 10.0) == "closed"


def test_a_busy_key_is_judged_by_the_whole_window() -> None:
    """Ten thousand calls a second that were well for half a minute are not condemned by a bad tenth of a second."""
    breaker = Breaker(10_000, RECOVERY_S, window_s=WINDOW_S, min_calls=10)
    for i in range(300_000):
        breaker.success(i * 1e-4, 1)
    for i in range(1000):
        breaker.failure(30.0 + i * 1e-4, 1)
    assert breaker.state(30.1) == "closed"
    assert len(breaker._slices) <= 66


def test_a_late_result_of_an_earlier_state_changes_nothing() -> None:
    """A success that started before the breaker opened does not close it."""
    breaker = Breaker(1, RECOVERY_S)
    slow, quick = breaker.admit(0.0), breaker.admit(0.0)
    assert slow is not None
    assert quick is not None
    breaker.failure(1.0, quick)
    breaker.success(2.0, slow)
    assert breaker.state(2.0) == "open"
    probe = breaker.admit(11.0)
    breaker.success(11.5, slow)
    assert breaker.state(11.5) == "half_open"
    assert probe is not None
    breaker.success(12.0, probe)
    assert breaker.state(12.0) == "closed"


def test_a_cancelled_probe_frees_its_slot() -> None:
    """While a probe runs nobody else goes; when it was cancelled, the next may."""
    breaker = Breaker(1, RECOVERY_S)
    run(breaker, 0.0, "failure")
    probe = breaker.admit(10.0)
    assert probe is not None
    assert breaker.admit(10.1) is None
    breaker.abandon(10.2, probe)
    assert breaker.admit(10.3) is not None
    assert breaker.admit(10.4) is None


def test_a_cancelled_call_from_before_frees_no_slot() -> None:
    """A call that started while the breaker was closed is no probe."""
    breaker = Breaker(1, RECOVERY_S)
    early = breaker.admit(0.0)
    run(breaker, 0.0, "failure")
    assert breaker.admit(10.0) is not None
    assert early is not None
    breaker.abandon(10.1, early)
    assert breaker.admit(10.2) is None


def test_a_probe_that_hangs_does_not_keep_the_key_out_for_ever() -> None:
    """After half a minute without a result the next probe may go; the old one's success closes all the same."""
    breaker = Breaker(1, RECOVERY_S)
    run(breaker, 0.0, "failure")
    hanging = breaker.admit(10.0)
    assert breaker.admit(39.9) is None
    second = breaker.admit(40.0)
    assert breaker.admit(40.0) is None
    assert hanging is not None
    assert second is not None
    breaker.abandon(40.5, second)
    assert breaker.admit(40.6) is not None
    breaker.success(41.0, hanging)
    assert breaker.state(41.0) == "closed"


def test_new_parameters_keep_the_state() -> None:
    """An open breaker stays open for as long as it was told; what is not given stays as it was."""
    breaker = Breaker(1, RECOVERY_S, half_open_max=2)
    run(breaker, 0.0, "failure")
    breaker.configure(5, 60.0)
    assert breaker.state(9.0) == "open"
    assert [breaker.admit(10.0) is not None for _ in range(3)] == [True, True, False]


def test_a_lower_threshold_counts_the_failures_that_were() -> None:
    """Two failures under a threshold of five, one more under a threshold of three: open."""
    breaker = Breaker(5, RECOVERY_S)
    run(breaker, 0.0, "failure", "failure")
    breaker.configure(3, RECOVERY_S)
    run(breaker, 0.0, "failure")
    assert breaker.state(0.0) == "open"


def test_reset_closes_and_forgets() -> None:
    """After a reset calls go, earlier ones are not heard, and the count starts again."""
    breaker = Breaker(2, RECOVERY_S)
    early = breaker.admit(0.0)
    assert early is not None
    run(breaker, 0.0, "failure", "failure")
    breaker.reset(1.0)
    breaker.failure(1.0, early)
    run(breaker, 1.0, "failure")
    assert breaker.state(1.0) == "closed"


class Machine(RuleBasedStateMachine):
    """Calls start, answer, fail, are cancelled, in any order; time passes. The model keeps every result."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker(THRESHOLD, RECOVERY_S, window_s=WINDOW_S, half_open_max=PROBES)
        self.now = 0.0
        self.epoch = 0  # of the model: one more with every change of state
        self.open_until: float | None = None
        self.in_a_row = 0
        self.results: list[tuple[float, bool]] = []
        self.running: list[tuple[int, int]] = []  # (generation, epoch)
        self.started_at = 0.0

    @property
    def expected(self) -> str:
        if self.open_until is None:
            return "closed"
        return "open" if self.now < self.open_until else "half_open"

    def move(self, open_until: float | None) -> None:
        self.epoch += 1
        self.open_until = open_until
        self.in_a_row = 0
        self.results = []

    def exceeded(self, window_s: float) -> bool:
        recent = [failed for moment, failed in self.results if self.now - moment <= window_s]
        return len(recent) >= 10 and sum(recent) >= 0.5 * len(recent)

    @rule(seconds=st.one_of(st.floats(0.0, 1.0), st.floats(0.0, 15.0)))
    def wait(self, seconds: float) -> None:
        probing = self.expected == "half_open" and any(epoch == self.epoch for _, epoch in self.running)
        # A probe that hangs lapses after 30 s, which has a test of its own.
        self.now = min(self.now + seconds, self.started_at + 29.0) if probing else self.now + seconds

    @rule()
    def start(self) -> None:
        generation = self.breaker.admit(self.now)
        probing = sum(epoch == self.epoch for _, epoch in self.running)
        allowed = {"closed": True, "open": False, "half_open": probing < PROBES}[self.expected]
        assert (generation is not None) == allowed
        if generation is not None:
            self.running.append((generation, self.epoch))
            self.started_at = self.now

    @precondition(lambda self: self.running)
    @rule(pick=st.integers(0, 1000), outcome=st.sampled_from(["success", "failure", "abandon"]))
    def end(self, pick: int, outcome: str) -> None:
        generation, epoch = self.running.pop(pick % len(self.running))
        state = self.expected
        getattr(self.breaker, outcome)(self.now, generation)
        if epoch != self.epoch or outcome == "abandon":
            return
        failed = outcome == "failure"
        if state == "half_open":
            self.move(self.now + RECOVERY_S if failed else None)
            return
        self.in_a_row = self.in_a_row + 1 if failed else 0
        self.results.append((self.now, failed))
        # The edge of the window is 1/64 soft: where both answers are right, the model takes the breaker's.
        softly = self.exceeded(WINDOW_S), self.exceeded(WINDOW_S * 63 / 64)
        opens = all(softly) or (any(softly) and self.breaker.state(self.now) == "open")
        if failed and (self.in_a_row >= THRESHOLD or opens):
            self.move(self.now + RECOVERY_S)

    @precondition(lambda self: self.expected == "closed")
    @rule(outcomes=st.lists(st.booleans(), max_size=8))
    def quick_calls(self, outcomes: list[bool]) -> None:
        for failed in outcomes:
            self.start_and_end("failure" if failed else "success")

    def start_and_end(self, outcome: str) -> None:
        if self.expected != "closed":
            return
        self.start()
        self.end(len(self.running) - 1, outcome)

    @invariant()
    def the_state_is_the_model_s(self) -> None:
        assert self.breaker.state(self.now) == self.expected
        wait = 0.0 if self.expected != "open" or self.open_until is None else self.open_until - self.now
        assert self.breaker.retry_after(self.now) == wait


TestBreaker = Machine.TestCase
