"""`patch_httpx` under the import path of QReward 0.1.7; re-exports only."""

from qreward.client.patch_httpx import patch_httpx, unpatch_httpx

__all__ = ["patch_httpx", "unpatch_httpx"]
