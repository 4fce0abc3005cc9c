"""Sources of compute of different kinds as one pool."""

from qreward.client.pool.pool import ComputePool
from qreward.client.pool.sources import CallableSource, OpenAISource, RewardServiceSource, Source
from qreward.client.pool.work import Scores

__all__ = ["CallableSource", "ComputePool", "OpenAISource", "RewardServiceSource", "Scores", "Source"]
