"""Firewall rules of the strict Compute Engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Final

from strict_clouds.firewall import IngressRule
from strict_clouds.gce_facts import Conditions, Visibility
from strict_clouds.gce_wire import PROJECT, GceError, Request, not_found

NAME: Final = re.compile(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?\Z")
_FILTER: Final = re.compile(r'name eq "([^"]*)"\Z')
_MOST_DESCRIPTION: Final = 2048
_LEAST_PRIORITY: Final = 65536
#: Fields of rules that the fake knows; others are refused, so that a test learns of them.
_FIELDS: Final = frozenset(
    {
        "name",
        "description",
        "network",
        "direction",
        "priority",
        "sourceRanges",
        "targetTags",
        "allowed",
        "denied",
    }
)
#: Of every default network: SSH from everywhere, and everything from inside.
_DEFAULT_RULES: Final[list[dict[str, Any]]] = [
    {
        "name": "default-allow-internal",
        "priority": 65534,
        "sourceRanges": ["10.128.0.0/9"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["0-65535"]}],
    },
    {
        "name": "default-allow-ssh",
        "priority": 65534,
        "sourceRanges": ["0.0.0.0/0"],
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    },
]


@dataclass(frozen=True)
class Opening:
    """What a rule of users lets through to instances with a tag."""

    tag: str
    first_port: int
    last_port: int
    source: str


class FirewallRules:
    """The rules of the project's networks."""

    def __init__(self, conditions: Conditions, visibility: Visibility) -> None:
        self._conditions = conditions
        self._visibility = visibility
        self.rules: dict[str, dict[str, Any]] = {}

    def listed(self, request: Request) -> list[dict[str, Any]]:
        found = _FILTER.match(request.query.get("filter", ""))
        if found is None:
            raise GceError(400, "invalid", "the strict fake wants a filter for a prefix")
        return [
            rule
            for name, rule in sorted(self.rules.items())
            if re.fullmatch(found[1], name) and self._visibility.sees(f"firewall {name}")
        ]

    def get(self, name: str) -> dict[str, Any]:
        if name not in self.rules or not self._visibility.sees(f"firewall {name}"):
            raise not_found(f"projects/{PROJECT}/global/firewalls/{name}")
        return self.rules[name]

    def insert(self, rule: dict[str, Any]) -> None:
        if rule["name"] in self.rules:
            raise GceError(409, "alreadyExists", f"firewall {rule['name']} already exists")
        self._check(rule)
        self.rules[rule["name"]] = dict(rule)
        self._visibility.hide(f"firewall {rule['name']}", self._conditions.hidden_for)

    def patch(self, name: str, changes: dict[str, Any]) -> None:
        if name not in self.rules:
            raise not_found(name)
        changed = {**self.rules[name], **changes}
        self._check(changed)
        self.rules[name] = changed

    def delete(self, name: str) -> None:
        if name not in self.rules:
            raise not_found(name)
        del self.rules[name]

    def openings(self) -> set[Opening]:
        """What the rules of users let through."""
        return {
            Opening(tag, *_range(ports), source)
            for rule in self.rules.values()
            for entry in rule.get("allowed", [])
            for ports in entry["ports"]
            for source in rule["sourceRanges"]
            for tag in rule.get("targetTags", [""])
        }

    def let_in(self, tags: Iterable[str]) -> set[IngressRule]:
        """The rules that decide on instances with these network tags: those above a rule that
        denies everything."""
        matching = [
            rule
            for rule in (*self.rules.values(), *_DEFAULT_RULES)
            if not rule.get("targetTags") or set(rule["targetTags"]) & set(tags)
        ]
        lowest = min(
            (rule["priority"] for rule in matching if "denied" in rule), default=_LEAST_PRIORITY
        )
        return {
            IngressRule(*_range(ports), source)
            for rule in matching
            if rule["priority"] < lowest
            for entry in rule["allowed"]
            for ports in entry["ports"]
            for source in rule["sourceRanges"]
        }

    def lets_through(self, tags: Iterable[str], port: int, source: str) -> bool:
        """Whether TCP from an address reaches an instance with these network tags."""
        matching = [
            rule
            for rule in (*self.rules.values(), *_DEFAULT_RULES)
            if not rule.get("targetTags") or set(rule["targetTags"]) & set(tags)
            if any(ip_address(source) in ip_network(one) for one in rule["sourceRanges"])
            if any(
                _covers(entry, port)
                for entry in (*rule.get("allowed", []), *rule.get("denied", []))
            )
        ]
        if not matching:
            return False
        first = min(rule["priority"] for rule in matching)
        return all("allowed" in rule for rule in matching if rule["priority"] == first)

    def _check(self, rule: dict[str, Any]) -> None:
        if unknown := set(rule) - _FIELDS:
            raise GceError(400, "invalid", f"fields that the fake does not know: {unknown}")
        if not NAME.match(rule["name"]):
            raise GceError(
                400, "invalid", f"Invalid value for field 'resource.name': {rule['name']}"
            )
        if len(rule.get("description", "")) > _MOST_DESCRIPTION:
            raise GceError(400, "invalid", "the description is too long")
        if rule["network"].rpartition("/")[2] not in self._conditions.networks:
            raise not_found(rule["network"])
        if ("allowed" in rule) == ("denied" in rule) or rule["direction"] != "INGRESS":
            raise GceError(400, "invalid", "a rule allows or denies")
        if not rule.get("sourceRanges"):
            raise GceError(400, "invalid", "a rule without sources applies to all")
        for entry in rule.get("denied", []):
            if entry["IPProtocol"] != "all" or rule["sourceRanges"] != ["0.0.0.0/0"]:
                raise GceError(400, "invalid", "the fake knows no rule that denies a part")
        for source in rule["sourceRanges"]:
            try:
                ip_network(source)
            except ValueError as error:
                raise GceError(400, "invalid", f"Invalid CIDR {source}") from error
        for tag in rule["targetTags"]:
            if not NAME.match(tag):
                raise GceError(400, "invalid", f"Invalid value for field targetTags: {tag}")


def _covers(entry: dict[str, Any], port: int) -> bool:
    if entry["IPProtocol"] not in ("tcp", "all"):
        return False
    return not entry.get("ports") or any(
        first <= port <= last for first, last in map(_range, entry["ports"])
    )


def _range(ports: str) -> tuple[int, int]:
    first, _, last = ports.partition("-")
    return int(first), int(last or first)
