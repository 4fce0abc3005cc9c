"""Keys: shared by what is decorated under them, merged, reconfigured, forgotten."""

from __future__ import annotations

import asyncio
import gc

from qreward.runtime.registry import Registry
from qreward.runtime.spec import BreakerSpec, GateSpec
from qreward.testing import run_virtual


class Owner:
    pass


def test_owners_of_one_key_share_a_gate_with_the_features_of_both() -> None:
    """One decoration sets a rate, another a breaker: both hold for the key."""
    registry, a, b = Registry(), Owner(), Owner()
    registry.configure("f", a, GateSpec(rate_size=5))
    registry.configure("f", b, GateSpec(breaker=BreakerSpec(3)))
    spec = registry.gate("f", "f").spec
    assert (spec.rate_size, spec.breaker) == (5, BreakerSpec(3))


def test_the_latest_decides_where_both_set_the_same() -> None:
    """Two rates for one key: the later one counts; a reload of the first makes it the latest."""
    registry, a, b = Registry(), Owner(), Owner()
    registry.configure("f", a, GateSpec(rate_size=5))
    gate = registry.gate("f", "f")
    registry.configure("f", b, GateSpec(rate_size=9))
    assert gate.spec.rate_size == 9
    registry.configure("f", a, GateSpec(rate_size=7))
    assert gate.spec.rate_size == 7


def test_an_owner_that_is_gone_has_no_say() -> None:
    """A function that was decorated and dropped leaves no limits behind."""
    registry, a, b = Registry(), Owner(), Owner()
    registry.configure("f", a, GateSpec(rate_size=5))
    del a
    gc.collect()
    registry.configure("f", b, GateSpec(breaker=BreakerSpec(3)))
    assert registry.gate("f", "f").spec.rate_size is None


def test_keys_under_one_base_are_separate_gates_with_the_same_limits() -> None:
    """`key_func` values do not share counters."""
    registry, owner = Registry(), Owner()
    registry.configure("f", owner, GateSpec(concurrency=1))
    one, two = registry.gate("f", "f.1"), registry.gate("f", "f.2")
    assert one is not two
    assert one.try_enter() is not None
    assert two.try_enter() is not None
    assert one.try_enter() is None


def test_turning_a_feature_off_reaches_all_keys() -> None:
    """A reload without the limit lifts it for every key of the function."""
    registry, owner = Registry(), Owner()
    registry.configure("f", owner, GateSpec(concurrency=1))
    gate = registry.gate("f", "f.1")
    registry.configure("f", owner, GateSpec())
    assert gate.spec.concurrency is None


def test_idle_keys_are_forgotten_and_busy_ones_are_not() -> None:
    """Thousands of keys used once do not stay for ever; one with a call in flight does."""
    registry, owner = Registry(), Owner()

    async def main() -> None:
        registry.configure("f", owner, GateSpec())
        busy = registry.gate("f", "f.busy")
        busy.try_enter()
        for i in range(1000):
            registry.gate("f", f"f.{i}")
        assert len(registry) == 1001
        await asyncio.sleep(3600)
        registry.gate("f", "f.new")
        assert len(registry) == 2
        assert registry.gate("f", "f.busy") is busy

    run_virtual(main())
