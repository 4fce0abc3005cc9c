"""Every example runs offline and shows its effect."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

# What the output of each example must show.
EFFECTS = {
    "normal/single_call.py": r"answer: 7\non the wire: .*'max_tokens': 4, 'seed': 1",
    "normal/batch_call.py": r"199 answers; entry 100 says 'echo:poem 100'\nentry 7: BadRequestError",
    "client/client_streaming.py": r"stopped after .*\nreaders that the judge saw leaving: 1",
    "client/client_batch_streaming.py": r"stream 3 failed: BadRequestError\n(?s:.*)stream 5: 'echo:poem number 5'",
    "client/client_load_balancer.py": r"round_robin +fast +100 +slow +100\n(?s:.*)0 of 200 calls lost",
    "client/client_model_router.py": r"72b +-> large\nqwen3-vl-7b +-> small\nllama-4 +-> rest",
    "pool/compute_pool.py": r"no hurry +│ +[\d.]+ +│ +[\d.]+ +│ 60 +│ 0 (?s:.*)cloud +healthy +done +[1-9]",
    "schedule/schedule_sync.py": r"requests the judge saw: 6 ",
    "schedule/schedule_debug.py": r"score: 6\n(?s:.*)slow:  0",
    "schedule/schedule_timeout.py": r"the judge saw 1 request and 1 disconnect",
    "schedule/schedule_limit.py": r"judge-b: 30 requests in .* at most (20|1\d) in any second",
    "schedule/schedule_retry.py": r"score 7 after 3 requests(?s:.*)after 1 request: a 400 is not repeated",
    "schedule/schedule_default_value.py": r"a value: +0.0\nNone: +None\na function: +-6\nwithout a default: Conn",
    "schedule/schedule_hedged_request.py": r"no hedging +2\.\d+ s +400\n.*=0.2 +[01]\.\d+ s +4\d\d",
    "schedule/schedule_circuit_breaker.py": r"the judge saw 3 of 6 calls\n.* closed again",
    "schedule/schedule_adaptive_limit.py": r"fixed: +\d\d+ refused(?s:.*)adaptive: +\d\d? refused",
    "schedule/schedule_metrics_callback.py": r"ok +2 +1 +0 (?s:.*)ok +2 +0 +1 (?s:.*)error +3 +2 +0 .*InternalServer",
    "schedule/schedule_priority.py": r"training +from 0\.\d",
    "schedule/schedule_telemetry.py": r"qreward\.schedule\.total_calls: \[3\]",
    "schedule/schedule_config_hot_reload.py": r"refused, limit_size is still 50\nlimit_size 0: +the rest at once",
    "schedule/schedule_combined.py": r"1000 of 1000 answers, each to its own prompt",
}


def scripts() -> list[str]:
    folders = ("schedule", "client", "normal", "pool")
    return sorted(str(p.relative_to(EXAMPLES)) for f in folders for p in (EXAMPLES / f).glob("*.py"))


def test_every_example_is_checked() -> None:
    """There is no example without an expected effect, and no effect without an example."""
    assert scripts() == sorted(EFFECTS)


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(EFFECTS))
def test_an_example_shows_its_effect(script: str) -> None:
    """It ends with status 0 and prints what it is about."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(EFFECTS[script], done.stdout), done.stdout
