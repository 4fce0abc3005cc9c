"""Every name of QReward 0.1.7 is where its users import it from, with the parameters they pass."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

NAMES = {
    "qreward": ["client", "utils", "__version__", "__author__"],
    "qreward.client": ["OpenAIChatProxy", "OpenAIChatProxyManager", "LoadBalanceStrategy", "ModelRouter"],
    "qreward.client.openai": ["OpenAIChatProxy", "MAX_RETRIES"],
    "qreward.client.manager": ["OpenAIChatProxyManager"],
    "qreward.client.load_balancer": ["LoadBalanceStrategy", "RoundRobinSelector", "WeightedRoundRobinSelector"],
    "qreward.client.model_router": ["ModelRouter", "ProxyGroup"],
    "qreward.client.patch_openai": [
        "patch_openai_embeddings",
        "unpatch_openai_embeddings",
        "HackCreateEmbeddingResponse",
        "hack_parser",
    ],
    "qreward.utils": [
        "schedule",
        "retry",
        "patch_httpx",
        "aiohttp_keepalive_socket_factory",
        "httpx_keepalive_socket",
        "RequestsTCPKeepAliveAdapter",
    ],
    "qreward.utils.scheduler": [
        "schedule",
        "ScheduleConfig",
        "ScheduleMetrics",
        "CircuitBreaker",
        "CircuitState",
        "AdaptiveRateLimiter",
        "Priority",
        "PriorityTaskQueue",
        "TelemetryExporter",
        "ConfigWatcher",
        "ExecutionContext",
        "LimiterPool",
        "RunningTaskPool",
        "OverloadChecker",
        "BaseRunner",
        "AsyncRunner",
        "SyncRunner",
    ],
    "qreward.utils.schedule": ["schedule", "LimiterPool", "RunningTaskPool"],
    "qreward.types": ["SOCKET_OPTION", "RetryPredicate", "BackoffGenerator", "RequestHook", "ResponseHook"],
    "qreward.globals": [
        "OVERLOAD_EXCEPTIONS",
        "OVERLOAD_KEYWORDS",
        "LIBRARY_OVERLOAD_EXCEPTIONS_MAPPING",
        "SYSTEM_OVERLOAD_INDICATORS",
    ],
}

SCHEDULE = {
    "timeout": 0,
    "hedged_request_time": 0,
    "hedged_request_proportion": 0.05,
    "hedged_request_max_times": 2,
    "speed_up_max_multiply": 5,
    "retry_times": 0,
    "retry_interval": 1,
    "limit_size": 0,
    "limit_window": 1.0,
    "key_func": ...,
    "exception_types": BaseException,
    "default_result": ...,
    "debug": False,
    "metrics_callback": None,
    "circuit_breaker_threshold": 0,
    "circuit_breaker_recovery": 30.0,
    "adaptive_limit": False,
    "adaptive_limit_min": 10,
    "adaptive_limit_max": 500,
    "adaptive_error_threshold": 0.3,
    "adaptive_latency_threshold": 5.0,
    "adaptive_window_seconds": 10.0,
    "priority": 5,
    "telemetry_exporter": None,
}

SIGNATURES = {
    "qreward.utils:retry": ["max_retries", "delay", "backoff_factor", "jitter", "retry_on", "check_exception"],
    "qreward.client:OpenAIChatProxy": [
        "base_url",
        "api_key",
        "debug",
        "max_concurrent",
        "chat_process_func",
        "error_process_func",
        "chat_process_fuc",
        "error_process_fuc",
        "timeout",
        "rate_limiter_bucket_size",
        "rate_limiter_bucket_period",
        "httpx_request_hook",
        "httpx_response_hook",
        "is_hack_embedding_method",
        "verify_ssl",
    ],
    "qreward.client:OpenAIChatProxyManager": ["strategy"],
    "qreward.utils.scheduler:CircuitBreaker": [
        "failure_threshold",
        "recovery_timeout",
        "half_open_max_calls",
        "time_func",
    ],
    "qreward.utils.scheduler:AdaptiveRateLimiter": [
        "initial_limit",
        "limit_min",
        "limit_max",
        "error_threshold",
        "latency_threshold",
        "window_seconds",
        "slowdown_factor",
        "speedup_factor",
        "cooldown_seconds",
    ],
    "qreward.utils.scheduler:PriorityTaskQueue": ["starvation_threshold"],
    "qreward.utils.scheduler:LimiterPool": ["rate", "window", "clock"],
    "qreward.utils.scheduler:RunningTaskPool": ["window_max_size", "window_interval", "threshold"],
    "qreward.utils.scheduler:TelemetryExporter": ["meter_name", "tracer_name"],
    "qreward.utils.scheduler:ConfigWatcher": [
        "config",
        "source",
        "file_path",
        "callback",
        "poll_interval",
        "cooldown",
    ],
    "qreward.utils.scheduler:ScheduleMetrics": [
        "total_calls",
        "success_count",
        "failure_count",
        "retry_count",
        "total_latency_ms",
        "avg_latency_ms",
    ],
    "qreward.utils:httpx_keepalive_socket": ["keepalive_secs", "keepalive_interval", "keepalive_cnt"],
    "qreward.utils:aiohttp_keepalive_socket_factory": [
        "addr_info",
        "keepalive_secs",
        "keepalive_interval",
        "keepalive_cnt",
    ],
}


@pytest.mark.parametrize("module", NAMES)
def test_every_name_is_where_it_was(module: str) -> None:
    """`from module import name` works for each documented name."""
    for name in NAMES[module]:
        if name == "client":
            importlib.import_module("qreward.client")
        assert hasattr(importlib.import_module(module), name), name


def test_schedule_keeps_its_parameters_in_order() -> None:
    """The 24 parameters come first, in order, with their defaults; what was added is keyword-only."""
    from qreward.utils import schedule

    parameters = list(inspect.signature(schedule).parameters.values())
    old = parameters[: len(SCHEDULE)]
    assert [p.name for p in old] == list(SCHEDULE)
    assert all(SCHEDULE[p.name] is ... or p.default == SCHEDULE[p.name] for p in old)
    assert all(p.kind is p.KEYWORD_ONLY for p in parameters[len(SCHEDULE) :])


@pytest.mark.parametrize("target", SIGNATURES)
def test_the_others_keep_theirs(target: str) -> None:
    """Parameter names and order are a prefix of what there is now."""
    module, name = target.split(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), name)).parameters
    assert list(parameters)[: len(SIGNATURES[target])] == SIGNATURES[target]


@pytest.mark.parametrize(
    "order",
    [
        "from qreward.utils import schedule; from qreward.utils.schedule import LimiterPool",
        "from qreward.utils.schedule import LimiterPool, schedule as f; from qreward.utils import schedule",
        "import qreward.utils.schedule; from qreward.utils import schedule",
        "import qreward.utils.scheduler; from qreward.utils.schedule import RunningTaskPool; "
        "from qreward.utils import schedule",
        "import qreward.utils.schedule as schedule; schedule.LimiterPool",
    ],
)
def test_schedule_is_a_function_in_any_import_order(order: str) -> None:
    """`from qreward.utils import schedule` is the decorator although a module has the same name."""
    code = f"{order}\nassert schedule(retry_times=1)(lambda: 7)() == 7"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_importing_the_library_is_light() -> None:
    """The decorator needs none of the client's packages."""
    heavy = ["openai", "httpx", "pydantic", "numpy", "opentelemetry", "requests", "aiohttp", "orjson", "yaml"]
    code = f"""
import sys
import qreward, qreward.utils, qreward.utils.scheduler, qreward.errors
print([name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
