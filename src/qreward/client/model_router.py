"""Routes from model names to groups of proxies: exact names first, then the most specific pattern."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qreward.client.load_balancer import LoadBalanceStrategy, RoundRobinSelector, WeightedRoundRobinSelector
from qreward.client.selection import Selection
from qreward.errors import NoHealthySource

_WILDCARDS = re.compile(r"[*?\[]")


@dataclass
class ProxyGroup:
    """The proxies that serve one pattern, and their own health."""

    pattern: str
    proxies: dict[str, Any]
    insertion_order: list[str] = field(default_factory=list)
    healthy_keys: set[str] = field(default_factory=set)
    weights: dict[str, int] = field(default_factory=dict)
    strategy: LoadBalanceStrategy = LoadBalanceStrategy.ROUND_ROBIN
    rr_selector: RoundRobinSelector = field(default_factory=RoundRobinSelector)
    wrr_selector: WeightedRoundRobinSelector = field(default_factory=WeightedRoundRobinSelector)

    def __post_init__(self) -> None:
        self.selection = Selection(self.strategy)
        self.selection.round_robin = self.rr_selector
        self.selection.weighted = self.wrr_selector


class ModelRouter:
    """Patterns are exact names or globs (``*``, ``?``, ``[…]``), matched case-sensitively."""

    def __init__(self) -> None:
        self._groups: dict[str, ProxyGroup] = {}

    def register(
        self,
        pattern: str,
        proxy_map: Mapping[str, Any],
        weights: Mapping[str, int] | None = None,
        strategy: LoadBalanceStrategy = LoadBalanceStrategy.ROUND_ROBIN,
    ) -> None:
        """Serve models that match *pattern* from *proxy_map*; a pattern registered again is replaced."""
        shares = {key: max(1, (weights or {}).get(key, 1)) for key in proxy_map}
        self._groups[pattern] = ProxyGroup(pattern, dict(proxy_map), list(proxy_map), set(proxy_map), shares, strategy)

    def resolve(self, model: str) -> ProxyGroup | None:
        """The group for *model*: its exact name, else the pattern with the most literal characters; None = no match."""
        exact = self._groups.get(model)
        if exact is not None:
            return exact
        matching = [g for p, g in self._groups.items() if _is_glob(p) and fnmatch.fnmatchcase(model, p)]
        return max(matching, key=lambda group: _literals(group.pattern), default=None)

    def select_from_group(self, group: ProxyGroup) -> Any:
        """The next proxy of *group* by its strategy; NoHealthySource (a RuntimeError) when none is left."""
        key = group.selection.select(group.insertion_order, group.healthy_keys, group.proxies, group.weights)
        if key is None:
            raise NoHealthySource(f"All proxies of route {group.pattern!r} are marked unhealthy.")
        return group.proxies[key]

    def mark_unhealthy(self, pattern: str, key: str) -> None:
        """Take *key* out of the route; unknown names are ignored."""
        group = self._groups.get(pattern)
        if group is not None:
            group.healthy_keys.discard(key)

    def mark_healthy(self, pattern: str, key: str) -> None:
        """Put *key* back; unknown names are ignored."""
        group = self._groups.get(pattern)
        if group is not None and key in group.proxies:
            group.healthy_keys.add(key)

    def groups(self) -> list[ProxyGroup]:
        """All groups, exact names first."""
        return sorted(self._groups.values(), key=lambda group: _is_glob(group.pattern))

    def list_routes(self) -> list[dict[str, Any]]:
        """One dict per route, exact names first."""
        return [
            {
                "pattern": group.pattern,
                "strategy": group.strategy.value,
                "proxy_count": len(group.proxies),
                "healthy_count": len(group.healthy_keys),
                "keys": list(group.insertion_order),
            }
            for group in self.groups()
        ]


def _is_glob(pattern: str) -> bool:
    return _WILDCARDS.search(pattern) is not None


def _literals(pattern: str) -> int:
    return len(re.sub(r"\[[^\]]*\]|[*?]", "", pattern))
