"""A faster JSON codec for httpx, process-wide, for those who ask for it; qreward's own client does not need it."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

_Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]

# module -> the functions that httpx came with
_originals: dict[ModuleType, tuple[Any, Any]] = {}


def patch_httpx(json_lib_name: str | None = None) -> None:
    """Make every httpx client of this process encode and decode JSON with *json_lib_name*.

    "orjson" or "ujson"; anything else, or a library that is not installed, means the standard library with compact
    UTF-8 output. None = the environment variable ``JSON_LIB``. `unpatch_httpx` undoes it.
    """
    dumps, loads = _codec(os.environ.get("JSON_LIB") if json_lib_name is None else json_lib_name)
    for httpx in _installed():
        content = httpx._content
        _originals.setdefault(httpx, (content.encode_json, httpx.Response.json))
        byte_stream = content.ByteStream

        def encode_json(value: Any, byte_stream: Any = byte_stream) -> tuple[dict[str, str], Any]:
            body = dumps(value)
            headers = {"Content-Length": str(len(body)), "Content-Type": "application/json"}
            return headers, byte_stream(body)

        def decode_json(self: Any, **kwargs: Any) -> Any:
            return json.loads(self.content, **kwargs) if kwargs else loads(self.content)

        content.encode_json = encode_json
        httpx.Response.json = decode_json


def unpatch_httpx() -> None:
    """Give httpx its own functions back; nothing happens where nothing was patched."""
    while _originals:
        httpx, (encode_json, decode_json) = _originals.popitem()
        httpx._content.encode_json = encode_json
        httpx.Response.json = decode_json


def _installed() -> list[Any]:
    """httpx, and httpx2, which newer releases of openai use."""
    found = []
    for name in ("httpx", "httpx2"):
        try:
            found.append(importlib.import_module(name))
        except ImportError:
            continue
    return found


def _codec(name: str | None) -> _Codec:
    try:
        if name == "orjson":
            import orjson

            return orjson.dumps, orjson.loads
        if name == "ujson":
            import ujson  # type: ignore[import-untyped, unused-ignore, import-not-found]

            return (lambda value: ujson.dumps(value, ensure_ascii=False).encode()), ujson.loads
    except ImportError:
        pass
    return _standard_dumps, json.loads


def _standard_dumps(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
