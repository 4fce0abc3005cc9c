"""``reward-service bench``: the same as ``scripts/bench_concurrent.py``."""

from __future__ import annotations

from reward_service.bench.command import add_arguments, run

__all__ = ["add_arguments", "run"]
