"""Text about failures that is safe to show to clients."""

from __future__ import annotations

import re

# Absolute paths of two parts or more; not the path of a URL.
_PATH = re.compile(r"(?<![\w:/.])(?:/[\w.@+~-]+){2,}/?")


def without_paths(text: str) -> str:
    """*text* with the folders of absolute file names left out: ``/opt/models/x.bin`` becomes ``…/x.bin``."""
    return _PATH.sub(lambda match: "…/" + match[0].rstrip("/").rsplit("/", 1)[1], text)
