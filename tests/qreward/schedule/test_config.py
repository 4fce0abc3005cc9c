"""ScheduleConfig and `config=`: a change reaches running functions at once, a bad one changes nothing."""

from __future__ import annotations

import asyncio
import copy
import warnings

import pytest

from qreward.errors import ConfigError
from qreward.utils import schedule
from qreward.utils.scheduler import Priority, ScheduleConfig


def failing() -> tuple[list[int], object]:
    calls: list[int] = []

    async def body() -> str:
        calls.append(1)
        raise ConnectionError("down")

    return calls, body


async def test_a_change_reaches_the_next_call() -> None:
    """Raising retry_times in the config gives the next call more attempts."""
    config = ScheduleConfig(retry_times=0, retry_interval=0.001)
    calls, body = failing()
    ours = schedule(config=config)(body)
    with pytest.raises(ConnectionError):
        await ours()
    assert len(calls) == 1
    config.update(retry_times=2)
    with pytest.raises(ConnectionError):
        await ours()
    assert len(calls) == 4


async def test_a_change_reaches_calls_that_wait() -> None:
    """Lifting a limit lets calls in that have waited for it."""
    config = ScheduleConfig(limit_size=1, limit_window=3600)

    @schedule(config=config)
    async def body() -> None: ...

    await body()
    waiting = asyncio.create_task(body())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    config.update(limit_size=0)
    await asyncio.wait_for(waiting, 10)


def test_a_bad_change_is_refused_whole() -> None:
    """One invalid value keeps all values as they were, and nobody is told."""
    config = ScheduleConfig(timeout=3)
    told: list[ScheduleConfig] = []
    config.on_change(told.append)
    with pytest.raises(ConfigError, match="retry_interval"):
        config.update(timeout=9, retry_interval=-1)
    assert (config.timeout, told) == (3, [])
    config.update(timeout=9, unknown=1)
    assert (config.timeout, told) == (9, [config])


async def test_what_a_file_cannot_hold_may_stand_beside_a_config() -> None:
    """Callables are taken beside config=; a setting given twice is refused by name."""
    _, body = failing()
    assert await schedule(config=ScheduleConfig(), default_result=7)(body)() == 7
    with pytest.raises(ConfigError, match="timeout"):
        schedule(timeout=3, config=ScheduleConfig())


def test_the_surface_of_the_config() -> None:
    """Defaults, properties and the deprecated name are as they were."""
    config = ScheduleConfig()
    assert (config.timeout, config.retry_interval, config.exception_types) == (0, 1, (BaseException,))
    assert config.priority == Priority.NORMAL == 5
    assert config.hedged_request_multiply == 0
    assert ScheduleConfig(hedged_request_time=1).hedged_request_multiply == pytest.approx(19)
    assert config.adjust_wait_time(-5, 0, 0) == 0.01
    assert config.adjust_wait_time(5, 1, 2) == 1
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert config.get_max_wait_time(1, 0, 0) == 1
    assert [w.category for w in caught] == [DeprecationWarning]
    assert config.snapshot()["limit_window"] == 1.0
    assert copy.copy(config.snapshot()) == config.snapshot()


async def test_functions_that_share_a_config_keep_what_is_their_own() -> None:
    """Two functions with one config each return their own default, also after a change of the config."""
    config = ScheduleConfig(retry_interval=0.001)
    (_, one), (_, two) = failing(), failing()
    first = schedule(config=config, default_result=1, exception_types=(ConnectionError,))(one)
    second = schedule(config=config, default_result=2)(two)
    assert (await first(), await second()) == (1, 2)
    config.update(retry_times=1)
    assert (await first(), await second()) == (1, 2)
    assert config.snapshot() == ScheduleConfig(retry_interval=0.001, retry_times=1).snapshot()
