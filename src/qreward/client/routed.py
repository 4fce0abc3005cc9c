"""One call over several proxies: the gate of whichever takes the next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qreward.policy.classify import Verdict
from qreward.runtime.limits import Permit

if TYPE_CHECKING:
    from qreward.client.openai import OpenAIChatProxy


class RoutedGate:
    """Stands in for a Gate in `drive`, for one call without hedges; `proxy` is the one that the next attempt uses."""

    def __init__(self, proxy: OpenAIChatProxy) -> None:
        self.proxy = proxy
        self.key = proxy.endpoint_name
        self._attempts = 0

    def _route(self, attempt: int) -> None:
        redirect = self.proxy._redirect
        if redirect is not None:
            self.proxy = redirect(self.proxy, attempt) or self.proxy

    def try_enter(self, first: bool = False) -> Permit | None:
        """As `Gate.try_enter`, at the proxy that the redirect names."""
        self._attempts += 1
        self._route(self._attempts)
        return self.proxy._gate.try_enter(first)

    async def enter(self, priority: int = 5) -> Permit:
        """As `Gate.enter`; a call that waited at a proxy which went out of service meanwhile moves on."""
        while True:
            waited_at = self.proxy
            permit = await waited_at._gate.enter(priority)
            self._route(1)
            if self.proxy is waited_at:
                return permit
            waited_at._gate.abandoned(permit)
            elsewhere = self.proxy._gate.try_enter()
            if elsewhere is not None:
                return elsewhere

    def succeeded(self, permit: Permit) -> None:
        self.proxy._gate.succeeded(permit)

    def failed(self, permit: Permit, exc: BaseException, verdict: Verdict) -> None:
        self.proxy._gate.failed(permit, exc, verdict)

    def abandoned(self, permit: Permit) -> None:
        self.proxy._gate.abandoned(permit)

    def retry_wait(self, patience_s: float) -> float:
        return self.proxy._gate.retry_wait(patience_s)

    def load(self) -> float:
        return self.proxy._gate.load()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.proxy._gate, name)
