"""Which certificates are trusted."""

from __future__ import annotations

import functools
import os
import ssl
from pathlib import Path

from qreward.errors import ConfigError

Verify = bool | str | os.PathLike[str] | ssl.SSLContext


def tls_context(verify: Verify) -> ssl.SSLContext:
    """The context for *verify*: True, False, a CA file or folder, or a context of your own.

    True trusts what ``SSL_CERT_FILE``/``SSL_CERT_DIR`` name, else the system's store, else certifi's. Contexts are
    shared. ConfigError when a path does not exist.
    """
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, bool):
        return _default_context() if verify else _unverified_context()
    return _custom_context(os.fspath(verify))


@functools.cache
def _default_context() -> ssl.SSLContext:
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())):
        return ssl.create_default_context()
    try:
        import certifi
    except ImportError:
        return ssl.create_default_context()
    return ssl.create_default_context(cafile=certifi.where())


@functools.cache
def _unverified_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@functools.lru_cache(maxsize=16)
def _custom_context(path: str) -> ssl.SSLContext:
    where = Path(path)
    if where.is_dir():
        return ssl.create_default_context(capath=path)
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as exc:  # ssl.SSLError is one
        raise ConfigError(
            f"verify_ssl={path!r} is not a readable file of CA certificates in PEM format: {exc}; "
            "use True for the system's store"
        ) from exc
