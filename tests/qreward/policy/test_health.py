"""The health of an endpoint against every order of events."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from qreward.policy.health import Health

BASE_S, MAX_S = 1.0, 8.0


class AnyOrder(RuleBasedStateMachine):
    """Out of service: nobody goes there before the pause is over, then one at a time; a success ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.health = Health(BASE_S, MAX_S)
        self.now = 0.0
        self.probing_since: float | None = None
        self.back_at: float | None = None
        self.pauses: list[float] = []

    def _went_out(self) -> None:
        self.pauses.append(self.health.returns_in(self.now))
        self.back_at = self.now + self.pauses[-1]
        self.probing_since = None

    @rule(seconds=st.floats(0.0, 3.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        out = self.back_at is not None
        free = self.probing_since is None or self.now - self.probing_since >= MAX_S
        may = not out or (self.now >= self.back_at and free)  # type: ignore[operator]
        assert self.health.may_try(self.now) == may
        assert self.health.admits(self.now) == may
        if out and may:
            self.probing_since = self.now

    @rule()
    def answered(self) -> None:
        self.health.answered(self.now)
        self.back_at = self.probing_since = None
        self.pauses = []

    @rule(refused=st.booleans())
    def failed(self, refused: bool) -> None:
        was_out, was_probe = self.back_at is not None, self.probing_since is not None
        ejected = self.health.failed(self.now, refused)
        assert not (was_out and ejected)
        assert ejected or was_out or not refused
        if ejected or was_probe:
            self._went_out()

    @rule()
    def hang(self) -> None:
        self.health.hang(self.now)
        self._went_out()

    @precondition(lambda self: self.probing_since is not None)
    @rule()
    def probe_is_cancelled(self) -> None:
        self.health.released()
        self.probing_since = None

    @invariant()
    def state_follows_the_events(self) -> None:
        if self.back_at is None:
            assert self.health.state(self.now) == "healthy"
            assert self.health.returns_in(self.now) == 0.0
        else:
            left = self.back_at - self.now
            assert self.health.state(self.now) == ("ejected" if left > 0 else "probing")
            assert abs(self.health.returns_in(self.now) - max(0.0, left)) < 1e-9

    @invariant()
    def pauses_double_up_to_the_longest(self) -> None:
        expected = [min(MAX_S, BASE_S * 2.0**i) for i in range(len(self.pauses))]
        assert all(abs(pause - e) < 1e-9 for pause, e in zip(self.pauses, expected, strict=True))


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_long_good_record_hides_nothing() -> None:
    """However many answers came before, half of the last twenty results being failures ejects."""
    health = Health()
    for _ in range(1000):
        health.answered(0.0)
    for i in range(9):
        assert not health.failed(1.0 + i)
        health.answered(1.5 + i)
    assert health.failed(20.0)


def test_a_probe_that_is_never_made_gives_its_slot_back() -> None:
    """A call that was let in and never began does not keep the endpoint out for ever."""
    health = Health(BASE_S, MAX_S)
    health.hang(0.0)
    assert health.admits(1.0)
    assert not health.admits(1.0 + MAX_S - 0.1)
    assert health.admits(1.0 + MAX_S)


def test_calls_from_before_the_probe_say_nothing_about_it() -> None:
    """While a probe runs, an older call that fails or is cancelled neither ends it nor lets a second one in."""
    health = Health(BASE_S, MAX_S)
    health.hang(0.0)
    assert health.admits(1.0)
    assert not health.failed(1.25, began=0.5)
    health.released(began=0.5)
    assert not health.admits(1.25)
    assert not health.failed(1.5, began=1.0)
    assert health.returns_in(1.5) == 2.0
    assert health.admits(3.5)
    health.released(began=3.5)
    assert health.admits(3.5)
