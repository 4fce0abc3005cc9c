"""Small questions to a service, answered at once or not at all."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any

_TIMEOUT_S = 10.0
# Services under test are reached directly; `--trust-env` is a matter of the clients.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get_json(url: str, timeout_s: float = _TIMEOUT_S) -> tuple[int, dict[str, Any]]:
    """Status and JSON object of a GET, an error status included; an empty object for any other body.

    Raises OSError when nobody answers.
    """
    try:
        try:
            with _opener.open(url, timeout=timeout_s) as response:
                status, body = response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                status, body = error.code, error.read()
    except http.client.HTTPException as error:
        raise OSError(f"{url}: not an HTTP answer ({type(error).__name__})") from error
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    return status, answer if isinstance(answer, dict) else {}
