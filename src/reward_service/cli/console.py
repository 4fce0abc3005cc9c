"""Where tables are printed."""

from __future__ import annotations

from rich.console import Console

# Wide enough for every table when the output is a file or a pipe.
_FILE_WIDTH = 140


def output_console() -> Console:
    """Standard output, as wide as the terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)
