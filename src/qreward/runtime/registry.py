"""The gates of the process by key, what their owners asked for, and the forgetting of idle ones."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from qreward.runtime import clock
from qreward.runtime.fork import renew_after_fork
from qreward.runtime.gate import Gate
from qreward.runtime.spec import GateSpec

_IDLE_S = 600.0  # a key unused for this long is forgotten
_SWEEP_S = 30.0


class Registry:
    """One gate per key. A *base* is what a decorated function contributes; `key_func` values make keys under it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gates: dict[str, Gate] = {}
        self._bases: dict[str, weakref.WeakKeyDictionary[Any, GateSpec]] = {}
        self._swept = clock.monotonic()
        renew_after_fork(self)

    def configure(self, base: str, owner: object, spec: GateSpec) -> None:
        """*owner* wants *spec* for all keys under *base*, at once. Owners of one base are merged, the latest last."""
        with self._lock:
            owners = self._bases.setdefault(base, weakref.WeakKeyDictionary())
            owners.pop(owner, None)
            owners[owner] = spec
            merged = self._merged(base)
            touched = [gate for gate in self._gates.values() if gate.base == base]
        for gate in touched:
            gate.configure(merged)

    def _merged(self, base: str) -> GateSpec:
        merged = GateSpec()
        for spec in list(self._bases.get(base, {}).values()):
            merged = merged.merged(spec)
        return merged

    def gate(self, base: str, key: str) -> Gate:
        """The gate of *key*, made on first use."""
        gate = self._gates.get(key)
        if gate is not None:
            return gate
        with self._lock:
            self._sweep()
            gate = self._gates.get(key)
            if gate is None:
                gate = self._gates[key] = Gate(key, self._merged(base), base=base)
            return gate

    def _sweep(self) -> None:
        now = clock.monotonic()
        if now - self._swept < _SWEEP_S:
            return
        self._swept = now
        for key, gate in list(self._gates.items()):
            if gate.forgettable(now, _IDLE_S):
                del self._gates[key]
        for base in [base for base, owners in self._bases.items() if not owners]:
            del self._bases[base]

    def __len__(self) -> int:
        return len(self._gates)

    def clear(self) -> None:
        """Forget every key; calls in flight keep their gates."""
        with self._lock:
            self._gates.clear()

    def after_fork(self) -> None:
        """In a forked child; the gates look after themselves."""
        self._lock = threading.Lock()


registry = Registry()
