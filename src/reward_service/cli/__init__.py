"""The command line: ``reward-service serve|check|rewards|demo|score|bench``."""

from reward_service.cli.entry import main

__all__ = ["main"]
