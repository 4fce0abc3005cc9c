"""What a replica is told, derived from the config."""

from __future__ import annotations

from pathlib import Path

import pytest

from reward_service.config import load_config_text
from reward_service.gateway.service import replica_specs
from reward_service.scorers import registry


def test_mps_reaches_the_scorer_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rewards with an `mps` block get the daemon's folders, their share of threads and their memory limit."""
    monkeypatch.setitem(registry.SCORER_MODULES, "clip", "reward_service.scorers.clip")
    config = load_config_text(
        f"""
mps: {{mode: external, pipe_directory: {tmp_path}/p, log_directory: {tmp_path}/l}}
rewards:
  - name: shared
    scorer: clip
    num_gpus: 0.5
    num_replicas: 2
    mps: {{active_thread_percentage: 100, device_memory_limit: 20GiB}}
  - {{name: alone, scorer: jpeg_compressibility, num_gpus: 0}}
"""
    )
    first, second, alone = replica_specs(config)
    assert (first.label, second.label, alone.env) == ("shared", "shared#1", {})
    assert (
        first.env
        == second.env
        == {
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
            "CUDA_MPS_PIPE_DIRECTORY": f"{tmp_path}/p",
            "CUDA_MPS_LOG_DIRECTORY": f"{tmp_path}/l",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
        }
    )
