"""The firewalls of fake machines: their rules, and what came through and what did not.

`machine_site/sitecustomize.py` obeys them.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, order=True)
class IngressRule:
    """A rule of a machine's firewall: these TCP ports, from these addresses.

    Args:
        first_port, last_port: both included.
        source_cidr: `203.0.113.7/32`.
    """

    first_port: int
    last_port: int
    source_cidr: str


@dataclass(frozen=True, slots=True, order=True)
class WideRule:
    """A rule that allows more than was used.

    Args:
        address: of the machine.
        used_by: (peer, port) of the connections that the rule let in.
    """

    address: str
    rule: IngressRule
    used_by: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Firewall:
    """The firewall of the machine whose directory this is; open until rules are set."""

    directory: Path

    def allow(self, rules: Iterable[IngressRule]) -> None:
        """Let in exactly these, from now on; connections that are open stay."""
        rows = sorted((rule.first_port, rule.last_port, rule.source_cidr) for rule in rules)
        partial = self.directory / "firewall.partial"
        partial.write_text(json.dumps(rows))
        partial.rename(self.directory / "firewall.json")

    @property
    def rules(self) -> tuple[IngressRule, ...]:
        path = self.directory / "firewall.json"
        rows = json.loads(path.read_text()) if path.exists() else ()
        return tuple(IngressRule(*row) for row in rows)

    @property
    def connections(self) -> frozenset[tuple[str, int]]:
        """(peer, port) of all that came through."""
        return self._noted("connections")

    @property
    def refused(self) -> frozenset[tuple[str, int]]:
        """(peer, port) of all that did not."""
        return self._noted("refused")

    def wide_rules(self) -> tuple[WideRule, ...]:
        """The rules of now with ports, or addresses, that nobody has used."""
        found = []
        for rule in self.rules:
            network = ipaddress.ip_network(rule.source_cidr)
            used_by = {
                (peer, port)
                for peer, port in self.connections
                if rule.first_port <= port <= rule.last_port
                and ipaddress.ip_address(peer) in network
            }
            peers, ports = {peer for peer, _ in used_by}, {port for _, port in used_by}
            allowed_ports = set(range(rule.first_port, rule.last_port + 1))
            if ports != allowed_ports or len(peers) != network.num_addresses:
                found.append(WideRule(self.directory.name, rule, tuple(sorted(used_by))))
        return tuple(found)

    def _noted(self, name: str) -> frozenset[tuple[str, int]]:
        path = self.directory / name
        lines = path.read_text().splitlines() if path.exists() else []
        return frozenset((peer, int(port)) for peer, port in (line.split() for line in lines))
