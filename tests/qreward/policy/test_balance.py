"""Balance and health: fair shares, the fewest calls, and endpoints that come and go."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from qreward.policy.balance import (
    LeastConnectionsSelector,
    RoundRobinSelector,
    WeightedRoundRobinSelector,
    power_of_two,
)
from qreward.policy.health import Health

KEYS = ["a", "b", "c", "d"]
subsets = st.sets(st.sampled_from(KEYS))


@given(st.lists(subsets, min_size=1, max_size=40))
def test_only_healthy_keys_are_chosen(rounds: list[set[str]]) -> None:
    """Every selector gives a healthy key, and None exactly when there is none."""
    turn, weighted, least = RoundRobinSelector(), WeightedRoundRobinSelector(), LeastConnectionsSelector()
    for healthy in rounds:
        for chosen in (
            turn.select(KEYS, healthy),
            weighted.select(KEYS, healthy, dict.fromkeys(KEYS, 2)),
            least.select(KEYS, healthy, lambda key: 0.0),
            power_of_two(sorted(healthy), lambda key: 1.0, (0.3, 0.9)),
        ):
            assert (chosen is None) == (not healthy)
            assert chosen is None or chosen in healthy


@given(st.dictionaries(st.sampled_from(KEYS), st.integers(1, 9), min_size=1))
def test_weights_are_shares(weights: dict[str, int]) -> None:
    """Over a round of all weights, each key gets exactly its weight."""
    selector, keys = WeightedRoundRobinSelector(), list(weights)
    selector.update_weights(weights)
    chosen = Counter(selector.select(keys, set(keys), weights) for _ in range(sum(weights.values())))
    assert chosen == weights


def test_a_key_without_a_weight_is_not_chosen() -> None:
    """Weights say who takes part; with no weights at all nobody does."""
    selector = WeightedRoundRobinSelector()
    assert {selector.select(["a", "b"], {"a", "b"}, {"b": 2}) for _ in range(4)} == {"b"}
    assert selector.select(["a", "b"], {"a", "b"}, {}) is None


def test_weights_are_spread_smoothly() -> None:
    """Weights of 3 and 1 give a a b a, not a a a b."""
    selector = WeightedRoundRobinSelector()
    assert [selector.select(["a", "b"], {"a", "b"}, {"a": 3, "b": 1}) for _ in range(4)] == ["a", "a", "b", "a"]


def test_the_fewest_connections_win_and_equals_take_turns() -> None:
    """Calls go where the fewest are; with equal loads nobody is preferred."""
    selector = LeastConnectionsSelector()
    load = {"a": 3.0, "b": 1.0, "c": 2.0}
    assert selector.select(list(load), set(load), load.__getitem__) == "b"
    equal = [selector.select(["a", "b", "c"], {"a", "b", "c"}, lambda key: 0.0) for _ in range(6)]
    assert Counter(equal) == {"a": 2, "b": 2, "c": 2}


@given(st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_two_choices_are_two_and_the_cheaper_wins(x: float, y: float) -> None:
    """The dearest of several is never chosen, and one key alone always is."""
    cost = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert power_of_two(list(cost), cost.__getitem__, (x, y)) in ("a", "b")
    assert power_of_two(["c"], cost.__getitem__, (x, y)) == "c"


def test_a_refused_connection_ejects_at_once() -> None:
    """Nobody listens: no second call goes there before the pause is over."""
    health = Health(base_s=1.0)
    assert health.failed(0.0, refused=True)
    assert [health.state(t) for t in (0.5, 1.0)] == ["ejected", "probing"]


def test_failures_eject_in_a_row_or_as_a_share() -> None:
    """Three in a row eject; so does half of the recent results; a single failure does not."""
    row = Health()
    assert [row.failed(0.0) for _ in range(3)] == [False, False, True]
    share = Health()
    for i in range(9):
        share.answered(float(i)) if i % 2 else share.failed(float(i))
    assert share.state(9.0) == "healthy"
    assert share.failed(9.0)


def test_one_probe_at_a_time_with_growing_pauses() -> None:
    """After the pause one call may try; its failure doubles the pause, its success ends it."""
    health = Health(base_s=1.0, max_s=30.0)
    health.failed(0.0, refused=True)
    assert health.admits(1.0)
    assert not health.admits(1.1)
    health.failed(1.2)
    assert health.returns_in(1.2) == 2.0
    assert health.admits(3.2)
    health.released()  # the probe was cancelled: another may go
    assert health.admits(3.3)
    health.answered(3.4)
    assert health.state(3.4) == "healthy"
    health.failed(5.0, refused=True)
    assert health.returns_in(5.0) == 1.0


def test_late_failures_of_calls_that_were_under_way_do_not_lengthen_the_pause() -> None:
    """A dying endpoint fails many calls at once: that is one ejection."""
    health = Health(base_s=1.0)
    health.failed(0.0, refused=True)
    for _ in range(50):
        health.failed(0.1)
    assert health.returns_in(0.1) == 0.9
