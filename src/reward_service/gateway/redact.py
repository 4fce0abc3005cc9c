"""Text about failures that is safe to show to clients."""

from __future__ import annotations

import re

# Absolute paths of two parts or more; not the path of a URL.
_PATH = re.compile(r"(?<![\w:/.])(?:/[\w.@+~-]+){2,}/?")
# A formatted traceback up to its last line, which says what was raised.
_TRACEBACK = "Traceback (most recent call last):"
_FRAMES = re.compile(re.escape(_TRACEBACK) + r"\n(?:[ \t].*(?:\n|$)|\n)*")


def without_paths(text: str) -> str:
    """*text* without tracebacks and without the folders of absolute file names.

    ``/opt/models/x.bin`` becomes ``…/x.bin``; of a traceback that a message quotes, the last line stays.
    """
    text = _FRAMES.sub("", text).partition(_TRACEBACK)[0].rstrip()
    return _PATH.sub(lambda match: "…/" + match[0].rstrip("/").rsplit("/", 1)[1], text)
