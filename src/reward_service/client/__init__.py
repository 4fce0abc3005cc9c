"""SDK of the reward service: ``RewardClient(url).score([RewardRequest(…)])``."""

from reward_service.aggregation import Aggregation
from reward_service.client.answer import ScoreResponse
from reward_service.client.errors import (
    ClientClosed,
    InvalidAnswer,
    ItemTooLarge,
    RequestRefused,
    RewardWarning,
    ScoreError,
    ServiceUnavailable,
)
from reward_service.client.facade import AsyncRewardClient, RewardClient
from reward_service.client.request import RewardRequest
from reward_service.errors import ClientError

__all__ = [
    "Aggregation",
    "AsyncRewardClient",
    "ClientClosed",
    "ClientError",
    "InvalidAnswer",
    "ItemTooLarge",
    "RequestRefused",
    "RewardClient",
    "RewardRequest",
    "RewardWarning",
    "ScoreError",
    "ScoreResponse",
    "ServiceUnavailable",
]
