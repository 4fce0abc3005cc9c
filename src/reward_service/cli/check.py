"""``reward-service check``: a configuration as a table, or every problem with it; needs no GPU and no Ray."""

from __future__ import annotations

import argparse

from reward_service.cli.arguments import read_config
from reward_service.cli.extras import CONFIG, require


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `entry.Command`."""
    parser.add_argument("config", metavar="CONFIG", help="the YAML file")


def run(args: argparse.Namespace) -> int:
    """Print the configuration; problems leave as ConfigError."""
    require("server", CONFIG, "check")
    config = read_config(args.config)
    from reward_service.config import describe

    print(describe(config))
    return 0
