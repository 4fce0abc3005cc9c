"""Strict base64 to bytes, with or without a ``data:`` prefix."""

from __future__ import annotations

import base64
import functools
import re

from ..errors import BadMedia

try:
    import pybase64

    _decode = functools.partial(pybase64.b64decode, validate=True)
except ImportError:
    # A scorer process on another node decodes pictures too, in an environment that need not have the faster codec.
    _decode = functools.partial(base64.b64decode, validate=True)

# Long enough for any media type with parameters; a comma further on belongs to no prefix.
_MAX_PREFIX = 256
_WHITESPACE = b" \t\r\n\f\v"
_FOREIGN = re.compile(r"[^A-Za-z0-9+/= \t\r\n\f\v]")


def decode_base64(text: str) -> bytes:
    """Bytes of a base64 text: standard alphabet, padded, not empty.

    A prefix ``data:[type][;parameter];base64,`` is skipped, in any case. ASCII whitespace, such as the
    line breaks of MIME, is tolerated at the price of a second pass. Everything else raises `BadMedia`.
    """
    payload = _after_data_prefix(text) if text[:5].lower() == "data:" else text
    try:
        data = _decode(payload)
    except ValueError:
        data = _decode_with_whitespace(payload)
    if not data:
        raise BadMedia("the base64 text is empty; send the encoded file, or leave the field out")
    return data


def _after_data_prefix(text: str) -> str:
    comma = text.find(",", 5, _MAX_PREFIX)
    if comma < 0:
        raise BadMedia(
            f"the data: URL has no comma in its first {_MAX_PREFIX} characters; "
            "write data:image/png;base64,… or the bare base64 text"
        )
    if not text[:comma].lower().endswith(";base64"):
        raise BadMedia("the data: URL is not base64; write data:image/png;base64,… or the bare base64 text")
    return text[comma + 1 :]


def _decode_with_whitespace(payload: str) -> bytes:
    try:
        compact = payload.encode("ascii").translate(None, _WHITESPACE)
        return _decode(compact)
    except ValueError:
        # The codec's error holds the whole text, so it is not kept as the cause.
        raise BadMedia(_diagnosis(payload)) from None


def _diagnosis(payload: str) -> str:
    foreign = _FOREIGN.search(payload)
    if payload[:8].lower().startswith(("http://", "https://", "file://")):
        return "this is an address, not base64; addresses are not fetched, send the file's bytes as base64"
    if foreign and foreign.group() in "-_":
        return (
            f"URL-safe base64: {foreign.group()!r} at position {foreign.start()}; "
            "use the standard alphabet, with '+' and '/' in place of '-' and '_'"
        )
    if foreign:
        return (
            f"not base64: character {foreign.group()!a} at position {foreign.start()}; "
            "allowed are A-Z a-z 0-9 + / and = at the end"
        )
    length = sum(not character.isspace() for character in payload)
    return (
        f"base64 with wrong padding: {length:,} characters, of which {payload.count('='):,} are '='; "
        "the length is a multiple of 4, with '=' only at the end (is the text cut off?)"
    )
