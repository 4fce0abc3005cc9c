"""`ConfigWatcher`: settings of running functions follow a file, the environment or a callback."""

from __future__ import annotations

import contextlib
import difflib
import inspect
import json
import logging
import math
import os
import threading
import typing
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from qreward.errors import ConfigError
from qreward.runtime import clock, portal

log = logging.getLogger("qreward.utils.scheduler.config_watcher")

ENV_PREFIX = "QREWARD_SCHEDULE_"
Values = Mapping[str, Any]
_SCALARS = (bool, int, float, float | str)
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_JOIN_S = 5.0
_MIN_TICK_S = 0.02
_DEBOUNCE_MS, _STEP_MS = 100, 20


class Configuration(Protocol):
    """What a watcher changes: a dataclass such as ScheduleConfig."""

    def update(self, **changes: Any) -> None: ...

    def snapshot(self) -> dict[str, Any]: ...


class ConfigWatcher:
    """Reads *source* again and again and applies what changed with one `config.update`.

    source: ``"file"``: *file_path* holds a JSON or YAML mapping of setting to value; edits, atomic renames and symlink
        swaps are seen at once (through watchfiles, and by reading every *poll_interval* seconds where the file system
        tells nothing). ``"env"``: variables ``QREWARD_SCHEDULE_<SETTING>``. ``"callback"``: *callback*, sync or async,
        returns a mapping or None (nothing new); an async one runs on the loop of `qreward.runtime.portal`.
    poll_interval: seconds between readings.
    cooldown: seconds between two changes; what comes sooner is applied when they have passed.
    on_error: called with the exception of every refused reload.

    Every setting that a file can hold is updatable; functions and exception classes are not. Unknown names are logged
    and ignored. A reload with an unreadable source or an invalid value is refused as a whole: it is logged, stays in
    `last_error` until the next good one, and the old values remain.

    `start` reads a file or the environment once before it returns; everything else happens on a daemon thread, which
    a forked child does not have. `poll_once` works without `start`. Raises ConfigError (a ValueError) for an unknown
    source or a missing *file_path* or *callback*.
    """

    def __init__(
        self,
        config: Configuration,
        source: str = "callback",
        file_path: str | os.PathLike[str] | None = None,
        callback: Callable[[], Values | Awaitable[Values | None] | None] | None = None,
        poll_interval: float = 5.0,
        cooldown: float = 5.0,
        *,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        if source not in ("file", "env", "callback"):
            raise ConfigError(f"source must be 'file', 'env' or 'callback', got {source!r}")
        if source == "file" and file_path is None:
            raise ConfigError("file_path is required for source='file'")
        if source == "callback" and callback is None:
            raise ConfigError("callback is required for source='callback'")
        if not poll_interval > 0 or not cooldown >= 0:
            raise ConfigError(f"poll_interval must be > 0 and cooldown >= 0, got {poll_interval!r} and {cooldown!r}")
        self._config = config
        self._source = source
        self._path = Path(file_path) if source == "file" and file_path is not None else None
        self._callback = callback
        self._poll_interval = poll_interval
        self._cooldown = cooldown
        self._on_error = on_error
        self._hints = updatable(config)
        self._lock = threading.RLock()
        self._reading: bytes | dict[str, Any] | None = None  # the last that was applied or refused
        self._refusal: Exception | None = None  # why it was refused
        self._complaint: str | None = None  # the last failure to read, told once
        self._deferred = False
        self._unknown: set[Any] = set()
        self._changed_at: float | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.last_error: Exception | None = None

    # -- reading once --------------------------------------------------------------------------------------------------

    def poll_once(self) -> bool:
        """Read the source now; True when settings changed. A bad source is reported, not raised."""
        with self._lock:
            self._deferred = False
            try:
                reading = self._read()
            except Exception as exc:
                if repr(exc) != self._complaint:
                    self._complaint = repr(exc)
                    self._refuse(exc)
                return False
            self._complaint = None
            if reading is None or reading == self._reading:
                self.last_error = self._refusal
                return False
            return self._consider(reading)

    def _read(self) -> bytes | dict[str, Any] | None:
        """What the source says, comparable with an earlier reading; None for nothing."""
        if self._source == "env":
            return {k[len(ENV_PREFIX) :].lower(): v for k, v in os.environ.items() if k.startswith(ENV_PREFIX)}
        if self._path is not None:
            content = self._path.read_bytes()
            return content if content.strip() else None  # an editor truncates before it writes
        assert self._callback is not None
        answer = self._callback()
        if inspect.isawaitable(answer):
            pending = answer

            async def wait() -> Values | None:
                return await pending

            answer = portal.run(wait)
        if answer is not None and not isinstance(answer, Mapping):
            raise ConfigError(f"the callback must return a mapping of setting to value or None, got {answer!r:.200}")
        return None if answer is None else dict(answer)

    def _consider(self, reading: bytes | dict[str, Any]) -> bool:
        error: Exception | None = None
        changes: dict[str, Any] = {}
        try:
            changes = self._changes(reading)
            if changes and self._cooling_s() > 0:
                self._deferred = True
                return False
            if changes:
                self._apply(changes)
        except Exception as exc:
            error = exc
        self._reading, self._refusal = reading, error
        if error is not None:
            self._refuse(error)
            return False
        self.last_error = None
        if changes:
            self._changed_at = clock.monotonic()
            log.info("%s: changed %s", self._origin, ", ".join(f"{k}={v!r}" for k, v in changes.items()))
        return bool(changes)

    def _changes(self, reading: bytes | dict[str, Any]) -> dict[str, Any]:
        values = reading if isinstance(reading, dict) else parse(reading, self._origin)
        typed = {name: coerce(name, value, self._hints[name]) for name, value in values.items() if self._known(name)}
        now = self._config.snapshot()
        return {name: value for name, value in typed.items() if now[name] != value}

    def _known(self, name: Any) -> bool:
        if name in self._hints:
            return True
        if name not in self._unknown:
            self._unknown.add(name)
            near = difflib.get_close_matches(str(name), self._hints, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            log.warning("%s: %r is not a setting that a reload can change%s", self._origin, name, hint)
        return False

    def _apply(self, changes: dict[str, Any]) -> None:
        now = self._config.snapshot()
        try:
            self._config.update(**changes)
        except Exception:
            if self._config.snapshot() != now:  # a function that uses the settings could not follow them
                with contextlib.suppress(Exception):
                    self._config.update(**{name: now[name] for name in changes})
            raise

    def _refuse(self, error: Exception) -> None:
        self.last_error = error
        log.error("%s: reload refused, the old settings remain: %s: %s", self._origin, type(error).__name__, error)
        if self._on_error is not None:
            try:
                self._on_error(error)
            except Exception:
                log.exception("on_error callback %r failed", self._on_error)

    def _cooling_s(self) -> float:
        return 0.0 if self._changed_at is None else self._changed_at + self._cooldown - clock.monotonic()

    @property
    def _origin(self) -> str:
        return str(self._path) if self._source == "file" else self._source

    # -- reading all the time ------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the thread watches the source."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Watch from now on; does nothing when that runs already."""
        if self.is_running:
            return
        if self._source != "callback":
            self.poll_once()
        self._stop = stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(stop,), name="qreward-reload", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; a callback that hangs is left behind after 5 s. The settings stay as they are."""
        thread, self._thread = self._thread, None
        self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_S)

    def __enter__(self) -> ConfigWatcher:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _watch(self, stop: threading.Event) -> None:
        with Changes(self._path) as changes:
            while not stop.is_set():
                changes.arm()  # before the reading, or what happens in between would go unseen
                self.poll_once()
                changes.wait(stop, self._tick_s())

    def _tick_s(self) -> float:
        wait = min(self._poll_interval, self._cooling_s()) if self._deferred else self._poll_interval
        return max(_MIN_TICK_S, wait)


class Changes:
    """Waits for something to happen around a file, symlinks on the way to it included; just waits without a file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._places: list[str] = []
        self._notify: Any = None

    def arm(self) -> None:
        """Collect events from now on. Where the file system offers none, `wait` waits."""
        if self._path is None or (places := directories(self._path)) == self._places:
            return
        self._close()
        try:
            from watchfiles._rust_notify import RustNotify

            self._notify = RustNotify(places, False, False, 0, False, False)
            self._places = places
        except (ImportError, OSError, RuntimeError) as exc:
            log.debug("%s: no file system events, reading it at intervals: %s", self._path, exc)

    def wait(self, stop: threading.Event, timeout_s: float) -> None:
        """Return after an event, *timeout_s*, or when *stop* is set."""
        if self._notify is not None:
            try:
                self._notify.watch(_DEBOUNCE_MS, _STEP_MS, max(1, round(1e3 * timeout_s)), stop)
                return
            except Exception as exc:  # the watcher's own errors; reading at intervals goes on
                log.debug("%s: file system events failed: %s", self._path, exc)
                self._close()
        stop.wait(timeout_s)

    def _close(self) -> None:
        self._places = []
        if self._notify is not None:
            self._notify.close()
            self._notify = None

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, *exc: object) -> None:
        self._close()


def directories(path: Path) -> list[str]:
    """The directories in which a change can make *path* lead to other bytes."""
    places: dict[str, None] = {}
    hop = path.absolute()
    for _ in range(40):  # as many as the kernel follows
        places[str(hop.parent)] = None
        places[os.path.realpath(hop.parent)] = None
        if not hop.is_symlink():
            break
        hop = hop.parent / hop.readlink()
    return sorted(place for place in places if os.path.isdir(place))


def parse(content: bytes, origin: str) -> Values:
    """The mapping in a JSON or YAML file (everything but ``.json`` may be YAML)."""
    values: Any
    try:
        values = json.loads(content)
    except ValueError as exc:
        if origin.endswith(".json"):
            raise ConfigError(f"{origin} is not JSON: {exc}") from exc
        values = _parse_yaml(content, origin)
    if not isinstance(values, dict):
        raise ConfigError(f"{origin} must hold a mapping of setting to value, got {type(values).__name__}")
    return values


def _parse_yaml(content: bytes, origin: str) -> Any:
    try:
        import yaml
    except ImportError as exc:
        raise ConfigError(f"{origin} is not JSON; install pyyaml to read YAML") from exc
    try:
        return yaml.safe_load(content)
    except yaml.YAMLError as exc:
        raise ConfigError(f"{origin} is neither JSON nor YAML: {exc}") from exc


def updatable(config: Configuration) -> dict[str, Any]:
    """The settings that text can hold, with their types."""
    hints = typing.get_type_hints(type(config))
    return {name: hints[name] for name in config.snapshot() if hints[name] in _SCALARS}


def coerce(name: str, value: Any, hint: Any) -> Any:
    """*value*, which may be text, as the setting *name* of type *hint*; ConfigError when it is none."""
    try:
        if hint is bool:
            return _bool(value)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ValueError
        if isinstance(value, str):
            value = value.strip()
        if hint is int:
            return _int(value)
        number = float(value) if isinstance(value, str) else value
        if not math.isfinite(number):
            raise ValueError
        return number
    except (ValueError, OverflowError):
        if hint == float | str and isinstance(value, str) and value[:1].isalpha():
            return value  # "p95"; update() judges it
        wanted = "a number or a quantile such as 'p95'" if hint == float | str else _WANTED[hint]
        raise ConfigError(f"{name} must be {wanted}, got {value!r}") from None


_WANTED: Final = {bool: "true or false", int: "a whole number", float: "a finite number"}


def _bool(value: Any) -> bool:
    text = str(value).strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError


def _int(value: int | float | str) -> int:
    if isinstance(value, str):
        return int(value)
    if value != int(value):
        raise ValueError
    return int(value)
