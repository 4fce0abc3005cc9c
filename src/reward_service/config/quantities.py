"""Sizes as people write them: ``64MiB`` to bytes and back."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"(?P<number>[0-9][0-9_]*(?:\.[0-9]+)?) ?(?P<unit>[A-Za-z]*)", re.ASCII)


def parse_bytes(value: object) -> int:
    """Bytes from a whole number or from text such as ``64MiB``, ``1.5 GiB`` or ``500MB``.

    Raises ValueError for everything else, for a fraction of a byte, and for less than one byte.
    """
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a size; write bytes like 1048576 or a size like 64MiB")
    count = Fraction(value) if isinstance(value, int) else _parse_text(value)
    if count < 1:
        raise ValueError(f"{value!r} is less than one byte; write a size like 64MiB")
    if count.denominator != 1:
        raise ValueError(f"{value!r} is not a whole number of bytes; write a size like 64MiB")
    return int(count)


def _parse_text(text: str) -> Fraction:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write bytes like 1048576 or a size like 64MiB")
    unit = match["unit"].lower() or "b"
    if unit not in _UNITS:
        # A bare M is 10**6 to some tools and 2**20 to others.
        raise ValueError(f"{text!r} has no unit known here; use B, KB, MB, GB, TB, KiB, MiB, GiB or TiB")
    return Fraction(match["number"].replace("_", "")) * _UNITS[unit]


def format_bytes(count: int) -> str:
    """*count* in the largest binary unit that keeps it at 1 or more, with up to four digits."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        size = _UNITS[unit.lower()]
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return f"{count}B"
