"""The service's YAML configuration: `load_config` reads and checks it, `describe` shows it.

Reading a configuration imports no Ray, torch, transformers or FastAPI.
"""

from reward_service.config.loader import load_config, load_config_text
from reward_service.config.models import (
    ClusterConfig,
    LimitsConfig,
    MpsConfig,
    RewardConfig,
    RewardMps,
    ServerConfig,
    ServiceConfig,
)
from reward_service.config.quantities import format_bytes, parse_bytes
from reward_service.config.summary import describe

__all__ = [
    "ClusterConfig",
    "LimitsConfig",
    "MpsConfig",
    "RewardConfig",
    "RewardMps",
    "ServerConfig",
    "ServiceConfig",
    "describe",
    "format_bytes",
    "load_config",
    "load_config_text",
    "parse_bytes",
]
