"""Keeping calls away from endpoints that fail or hang, and moving those that are stuck there."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from qreward.client.selection import Selection, gate_of
from qreward.policy.classify import Kind, classify
from qreward.policy.health import Health, State, hang_patience
from qreward.runtime import clock
from qreward.runtime.fork import renew_after_fork
from qreward.runtime.wake import call_on
from qreward.runtime.watch import PASS_THROUGH

if TYPE_CHECKING:
    from qreward.client.openai import OpenAIChatProxy

log = logging.getLogger("qreward.client.manager")

_CHECK_S = 0.25
_MOST_FALSE_ALARMS = 4
_LONGEST_WAIT_S = 60.0  # for an endpoint to come back, where the call has no deadline


class Until:
    """How long a call waits for an endpoint to come back: its *deadline_s*, or a minute."""

    def __init__(self, deadline_s: float | None) -> None:
        self.given = deadline_s is not None
        self._until = clock.monotonic() + (_LONGEST_WAIT_S if deadline_s is None else deadline_s)

    def left(self) -> float:
        """Seconds, negative when it is over."""
        return self._until - clock.monotonic()

    def argument(self) -> dict[str, float]:
        """What an attempt that starts now is told."""
        return {"deadline_s": max(0.001, self.left())} if self.given else {}


class Member:
    """One endpoint: its health, and since when it owes an answer."""

    def __init__(self, proxy: OpenAIChatProxy) -> None:
        self.proxy = proxy
        self.health = Health()
        self.silent_since = clock.monotonic()
        self.probe_due = False  # the next call that begins here is the probe
        self.suspected = False  # it is out of service because it seemed to hang
        self.stop_observing: Callable[[], None] = lambda: None


class Fleet:
    """The endpoints of a manager. Any thread and any event loop may use it."""

    def __init__(self, choose: Callable[[OpenAIChatProxy, list[OpenAIChatProxy]], OpenAIChatProxy | None]) -> None:
        self._choose = choose
        self._members: dict[int, Member] = {}
        # Each loop watches for itself: one that stands still, or is a forked child's parent's, watches for nobody.
        self._watching: weakref.WeakSet[asyncio.AbstractEventLoop] = weakref.WeakSet()
        self._false_alarms = 0  # endpoints that answered at once after they had been taken for hanging
        self.after_fork()
        renew_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child nobody waits, and no probe is under way."""
        self._lock = threading.Lock()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        for member in self._members.values():
            member.health.released()
            member.probe_due = False

    def add(self, proxy: OpenAIChatProxy) -> None:
        """Watch *proxy*; stand-ins without a gate are left alone."""
        if gate_of(proxy) is None or id(proxy) in self._members:
            return
        member = Member(proxy)
        self._members[id(proxy)] = member
        member.stop_observing = proxy.observe(self._told)
        proxy._redirect = self._redirect

    def remove(self, proxy: OpenAIChatProxy) -> None:
        """Forget *proxy*."""
        member = self._members.pop(id(proxy), None)
        if member is not None:
            member.stop_observing()
            proxy._redirect = None

    def state(self, proxy: OpenAIChatProxy) -> State:
        """`healthy` also for what is not watched."""
        member = self._members.get(id(proxy))
        return "healthy" if member is None else member.health.state(clock.monotonic())

    def usable(self, proxy: OpenAIChatProxy) -> bool:
        """Whether a new call may go to *proxy*; takes the slot of the probe where one is due."""
        member = self._members.get(id(proxy))
        if member is None:
            return True
        with self._lock:
            now = clock.monotonic()
            probe = member.health.state(now) == "probing"
            admitted = member.health.admits(now)
            member.probe_due = member.probe_due or (probe and admitted)
            return admitted

    def returns_in(self, proxy: OpenAIChatProxy) -> float:
        """Seconds until *proxy* may be asked again."""
        member = self._members.get(id(proxy))
        return 0.0 if member is None else member.health.returns_in(clock.monotonic())

    def revive(self, proxy: OpenAIChatProxy) -> None:
        """The user says that it works."""
        member = self._members.get(id(proxy))
        if member is not None:
            with self._lock:
                member.health.answered(clock.monotonic())
            self._wake()

    async def change(self, at_most_s: float) -> None:
        """Wait until an endpoint's probe ends or one is revived, at most *at_most_s* seconds."""
        loop = asyncio.get_running_loop()
        waiter = loop, loop.create_future()
        with self._lock:
            self._waiting.append(waiter)
        try:
            await asyncio.wait_for(waiter[1], at_most_s)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            call_on(loop, _resolve, future)

    # -- what proxies ask and tell ---------------------------------------------------------------------------------

    def _redirect(self, proxy: OpenAIChatProxy, attempt: int) -> OpenAIChatProxy | None:
        member = self._members.get(id(proxy))
        if member is None:
            return None
        self._watch(member)
        if attempt == 1 and (member.probe_due or member.health.state(clock.monotonic()) == "healthy"):
            member.probe_due = False
            return None
        others = [m.proxy for m in list(self._members.values()) if m is not member]
        return self._choose(proxy, others)

    def _told(self, proxy: OpenAIChatProxy, ok: bool, exc: BaseException | None, latency_s: float) -> None:
        member = self._members.get(id(proxy))
        if member is None:
            return
        now = clock.monotonic()
        with self._lock:
            before = member.health.state(now)
            ejected = self._book(member, exc, now, now - latency_s)
        if before != "healthy":
            self._wake()
        if ejected:
            log.warning("%s is out of service: %s: %s", proxy.endpoint_name, type(exc).__name__, exc)

    def _book(self, member: Member, exc: BaseException | None, now: float, began: float) -> bool:
        """An attempt that started at *began* ended; whether that takes the endpoint out of service."""
        if isinstance(exc, PASS_THROUGH):
            member.health.released(began)
            return False
        verdict = None if exc is None else classify(exc)
        if verdict is None or verdict.kind is not Kind.TRANSIENT:
            member.silent_since = now
            member.health.answered(now)
            if member.suspected:
                member.suspected = False
                self._false_alarms = min(_MOST_FALSE_ALARMS, self._false_alarms + 1)
            return False
        if member.suspected and member.health.state(now) == "probing":
            member.suspected = False
            self._false_alarms = 0
        return member.health.failed(now, verdict.unsent, began)

    # -- hanging endpoints -------------------------------------------------------------------------------------------

    def _watch(self, member: Member) -> None:
        gate = gate_of(member.proxy)
        if gate is not None and gate.inflight == 0:
            member.silent_since = clock.monotonic()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        with self._lock:
            if loop in self._watching:
                return
            self._watching.add(loop)
        loop.call_later(_CHECK_S, self._check, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self.check()
        if any(m.proxy._gate.inflight or m.proxy._gate.waiting for m in list(self._members.values())):
            loop.call_later(_CHECK_S, self._check, loop)
        else:
            with self._lock:
                self._watching.discard(loop)

    def check(self) -> None:
        """Eject the endpoints that owe answers for far longer than usual, and free the calls that wait for them."""
        members = list(self._members.values())
        patience = self._patience(members)
        if len(members) < 2 or patience is None:
            return
        with self._lock:  # several loops watch; one of them decides
            stuck = self._stuck(members, clock.monotonic(), patience)
        for member in stuck:
            freed = member.proxy.interrupt()
            log.warning(
                "%s has not answered for %.1f s: out of service, %d calls go elsewhere",
                member.proxy.endpoint_name,
                patience,
                freed,
            )

    def _stuck(self, members: list[Member], now: float, patience: float) -> list[Member]:
        stuck = []
        for member in members:
            if member.proxy._gate.inflight == 0:
                member.silent_since = now
            elif now - member.silent_since > patience and self._somebody_answers(member, now, patience):
                member.health.hang(now)
                member.suspected = True
                member.silent_since = now
                stuck.append(member)
        return stuck

    def _patience(self, members: list[Member]) -> float | None:
        """Seconds without an answer after which an endpoint hangs; None before the first answer of any."""
        gates = [member.proxy._gate for member in members]
        patience = hang_patience((gate.quantile(0.95), gate.mean_s) for gate in gates)
        # Endpoints that turn out to work have calls that take long: those must not be driven round for ever.
        return None if patience is None else patience * 2.0**self._false_alarms

    def _somebody_answers(self, member: Member, now: float, patience: float) -> bool:
        return any(
            other is not member
            and other.health.state(now) == "healthy"
            and (now - other.silent_since < patience or other.proxy._gate.inflight == 0)
            for other in list(self._members.values())
        )


def pick(
    fleet: Fleet | None, selection: Selection, candidates: Mapping[str, Any], weights: Mapping[str, int]
) -> tuple[OpenAIChatProxy, bool] | None:
    """One of *candidates*, and whether it may be asked now: it is in service, or the call is to probe it.

    When all are out of service, the first to return; None when there are none.
    """
    keys = list(candidates)
    working = {key for key in keys if fleet is None or fleet.state(candidates[key]) == "healthy"}
    if fleet is not None:
        due = next((key for key in keys if key not in working and fleet.usable(candidates[key])), None)
        if due is not None:
            return candidates[due], True
    key = selection.select(keys, working, candidates, weights)
    if key is not None:
        return candidates[key], True
    if fleet is None or not keys:
        return None
    return candidates[min(keys, key=lambda key: fleet.returns_in(candidates[key]))], False


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
