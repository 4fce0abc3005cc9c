"""Reads the command line, runs the command, and turns what goes wrong into one message and an exit code."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from reward_service import __version__
from reward_service.errors import ConfigError, RewardServiceError

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
LOG_LEVELS = ("debug", "info", "warning", "error")

# Help texts stand here, so that `--help` imports no command.
COMMANDS = {
    "serve": "run the service in the foreground",
    "check": "say what is wrong with a configuration, or show it",
    "rewards": "list the scorers here, or the rewards of a running service",
    "demo": "start a small service, score real pictures, show the scores",
    "score": "score a file or folder, resumable",
    "bench": "measure a running service",
}

EPILOG = """\
Without a command, `reward-service --config FILE` is `reward-service serve --config FILE`.
Exit codes: 0 done, 1 the service failed or is not there, 2 wrong usage or configuration, 3 some scores
failed, 130 interrupted.
"""


class Command(Protocol):
    """A module of this package that is a subcommand."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; the exit code. ConfigError is wrong usage, other errors of the package a failure."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command with *argv* (default: the process's own); returns the exit code.

    0 done, 1 the service failed or is not there, 2 wrong usage or configuration, 3 some scores failed,
    130 interrupted. Messages go to stderr without a traceback; an error that nobody foresaw is raised.
    """
    try:
        args = _parse(list(sys.argv[1:] if argv is None else argv))
        _configure_logging(args.log_level)
        return _command(args.command).run(args)
    except SystemExit as stop:
        # argparse's way to end; others give a code too.
        return stop.code if isinstance(stop.code, int) else OK
    except ConfigError as error:
        return _say(USAGE, error)
    except RewardServiceError as error:
        return _say(FAILED, error)
    except BrokenPipeError:
        # The reader of our output (`head`) is gone; the interpreter must not try to flush to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except OSError as error:
        return _say(FAILED, f"{error}; check the path, the permissions and the space on the disk")
    except KeyboardInterrupt:
        return _say(INTERRUPTED, "interrupted")


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="reward-service",
        description="Rewards for reinforcement learning on images, videos and texts, over HTTP.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"reward-service {__version__}")
    _add_log_level(parser, default="warning")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    argv = _with_command(argv)
    chosen = next((word for word in argv if word in COMMANDS), None)
    for name, text in COMMANDS.items():
        own = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
        _add_log_level(own, default=argparse.SUPPRESS)
        if name == chosen:
            _command(name).add_arguments(own)
    return parser.parse_args(argv)


def _with_command(argv: list[str]) -> list[str]:
    """*argv* with ``serve`` before its first option when that is not one of the program's own."""
    place = 0
    while place < len(argv) and argv[place].startswith("--log-level"):
        place += 1 if "=" in argv[place] else 2
    word = argv[place] if place < len(argv) else ""
    if word.startswith("-") and word not in ("-h", "--help", "--version"):
        return [*argv[:place], "serve", *argv[place:]]
    return argv


def _command(name: str) -> Command:
    # Imported only when it is run: `rewards --url` must not pay for, or need, what `serve` needs.
    module: Command = importlib.import_module(f"reward_service.cli.{name}")
    return module


def _add_log_level(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--log-level",
        choices=LOG_LEVELS,
        default=default,
        metavar="LEVEL",
        help=f"what the program tells about itself: {', '.join(LOG_LEVELS)} (warning)",
    )


def _configure_logging(level: str) -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for package in ("reward_service", "qreward"):
        logging.getLogger(package).setLevel(level.upper())


def _say(code: int, problem: object) -> int:
    text = "\n".join(line for line in str(problem).splitlines() if line.strip())
    # Each line of a list of problems starts with its own place.
    is_list = code == USAGE and "\n" in text
    print(text if is_list or code == INTERRUPTED else f"error: {text}", file=sys.stderr)
    return code
