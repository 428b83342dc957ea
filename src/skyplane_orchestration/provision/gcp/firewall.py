"""The firewall of a fleet: rules of the VPC network for the instances of one region.

The instances of a fleet in a region share a network tag. One rule denies them all traffic from
outside, also what the network's other rules allow, such as SSH from everywhere in a default
network. Rules with a higher priority allow peers ranges of ports, one rule for each range of them,
and workers their ports, one rule for each range of addresses. Their names are made of the fleet,
so no two workers can make one twice.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any, Final

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.ingress_rules import by_ports, normal
from skyplane_orchestration.provision.fleet.machines import FleetResource, FleetTags, Ingress
from skyplane_orchestration.provision.gcp.client import GcpApi
from skyplane_orchestration.provision.gcp.error_mapping import EXISTS, NOT_FOUND
from skyplane_orchestration.provision.gcp.options import (
    described,
    description,
    fleet_prefix,
    network_tag,
)
from skyplane_orchestration.provision.parallel import in_parallel

FIREWALL: Final = "firewall"

#: Rules of users and those of default networks have 1000 and 65534; the smallest number counts.
_ALLOW_PRIORITY: Final = 800
_DENY_PRIORITY: Final = 900
#: Begins the last part of the names of rules for workers.
_WORKER: Final = "w"


class FirewallRules:
    """The firewall rules of fleets. Threads may share it."""

    def __init__(self, api: GcpApi) -> None:
        self._api = api
        self._options = api.options
        self._project = api.options.firewall_project

    def create_firewalls(self, fleet: FleetTags, regions: Iterable[str]) -> None:
        """Close the instances of regions; removes nothing."""
        found = {rule.name: rule for rule in self._rules(fleet_prefix(fleet.fleet_key))}
        self._ensure_all([self._closed(fleet, region) for region in regions], found)

    def admit(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`. Raises CloudUnavailable: the firewall is gone."""
        closed = self._closed(fleet, region)["name"]

        def look() -> dict[str, Any] | None:
            rules = self._rules_of(fleet.fleet_key, region)
            return rules if closed in rules else None

        found = self._api.until_visible(look)
        if found is None:
            raise torn_down(f"the firewall of fleet {fleet.fleet_key} in {region}")
        opened = []
        for one in normal(ingress):
            network = IPv4Network(one.source_cidr)
            packed = network.network_address.packed + bytes([network.prefixlen])
            # Short, since names have 63 characters.
            suffix = _WORKER + base64.b32encode(packed).decode().lower()
            ports = f"{one.first_port}-{one.last_port}"
            opened.append(self._opened(fleet, region, suffix, ports, [one.source_cidr]))
        self._ensure_all(opened, found)

    def set_ingress(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`."""
        found = self._rules_of(fleet.fleet_key, region)
        opened = [
            self._opened(fleet, region, f"{first}-{last}", f"{first}-{last}", sources)
            for (first, last), sources in by_ports(normal(ingress)).items()
        ]
        wanted = [self._closed(fleet, region), *opened]
        # The new ones first, so that no rule is missing in between.
        self._ensure_all(wanted, found)
        kept = {rule["name"] for rule in wanted}
        workers = f"{network_tag(fleet.fleet_key, region)}-{_WORKER}"
        old = [name for name in found if name not in kept and not name.startswith(workers)]
        in_parallel(old, self._delete)

    def found(
        self, regions: Collection[str], is_wanted: Callable[[FleetTags], bool], fleet_key: str = ""
    ) -> Iterator[FleetResource]:
        """One resource for all rules of a fleet in a region that have our description.

        Args:
            is_wanted: whether the fleet with these tags counts.
            fleet_key: of the only fleet to look for.
        """
        seen = set()
        for rule in self._rules(fleet_prefix(fleet_key)):
            fleet, region = described(rule.description) or (None, "")
            if fleet is None or region not in regions or not is_wanted(fleet):
                continue
            tag = network_tag(fleet.fleet_key, region)
            if tag in rule.target_tags and tag not in seen:
                seen.add(tag)
                yield FleetResource(kind=FIREWALL, cloud_id=tag, region=region, tags=fleet)

    def delete(self, firewall: FleetResource) -> None:
        """Delete the rules of a fleet in a region; those that are gone are no error."""
        found = self._rules_of(firewall.tags.fleet_key, firewall.region)
        # The rule that denies goes last.
        opening = [name for name, rule in found.items() if rule.allowed]
        in_parallel(opening, self._delete)
        in_parallel([name for name in found if name not in opening], self._delete)

    def _closed(self, fleet: FleetTags, region: str) -> dict[str, Any]:
        """The rule that denies."""
        return {
            **self._rule(fleet, region, "closed"),
            "priority": _DENY_PRIORITY,
            "source_ranges": ["0.0.0.0/0"],
            "denied": [{"I_p_protocol": "all"}],
        }

    def _opened(
        self, fleet: FleetTags, region: str, suffix: str, ports: str, sources: Sequence[str]
    ) -> dict[str, Any]:
        """A rule that allows a range of ports."""
        return {
            **self._rule(fleet, region, suffix),
            "priority": _ALLOW_PRIORITY,
            "source_ranges": sources,
            "allowed": [{"I_p_protocol": "tcp", "ports": [ports]}],
        }

    def _rule(self, fleet: FleetTags, region: str, suffix: str) -> dict[str, Any]:
        """What all rules of a region have."""
        tag = network_tag(fleet.fleet_key, region)
        return {
            "name": f"{tag}-{suffix}",
            "description": description(fleet, region),
            "network": self._options.network_path,
            "direction": "INGRESS",
            "target_tags": [tag],
        }

    def _ensure_all(self, wanted: Iterable[dict[str, Any]], found: Mapping[str, Any]) -> None:
        """Make the rules that are not as wanted; `found` has those that were seen, by name."""
        lacking = [
            rule
            for rule in wanted
            if rule["name"] not in found or not _is_same(found[rule["name"]], rule)
        ]
        in_parallel(lacking, self._ensure)

    def _ensure(self, rule: dict[str, Any]) -> None:
        """Make a rule, or set the one of its name to what it says."""
        name = rule["name"]
        if self._is_done("insert", name, EXISTS, firewall_resource=rule):
            return
        asked = {"project": self._project, "firewall": name}
        what = f"looking for the firewall rule {name}"
        found = self._api.until_visible(lambda: self._api.find("firewalls.get", asked, what=what))
        if found is None:
            raise CloudUnavailable(
                f"Google Cloud says that the firewall rule {name} exists, and does not show it;"
                " try again"
            )
        wanted, theirs = described(rule["description"]), described(found.description)
        if wanted is None or theirs is None or theirs[0].fleet_key != wanted[0].fleet_key:
            raise ConfigurationInvalid(
                f"the firewall rule {name} of {self._options.network_path} does not have the"
                " description of its fleet; delete it, or give it the description again"
            )
        if not _is_same(found, rule):
            self._is_done("patch", name, firewall=name, firewall_resource=rule)

    def _delete(self, name: str) -> None:
        self._is_done("delete", name, NOT_FOUND, firewall=name)

    def _is_done(
        self, verb: str, name: str, expected: frozenset[str] = frozenset(), **request: Any
    ) -> bool:
        """Change a rule; False if Google refuses it as expected."""
        doing = "deleting" if verb == "delete" else "opening"
        try:
            self._api.done(
                f"firewalls.{verb}",
                {"project": self._project, **request},
                what=f"{doing} the firewall rule {name}",
                expected=expected,
            )
        except CloudRefusal:
            return False
        return True

    def _rules_of(self, fleet_key: str, region: str) -> dict[str, Any]:
        """Name -> rule of a fleet in a region."""
        tag = network_tag(fleet_key, region)
        return {rule.name: rule for rule in self._rules(f"{tag}-") if tag in rule.target_tags}

    def _rules(self, prefix: str) -> Iterator[Any]:
        """The rules whose names begin so."""
        pages = self._api.pages(
            "firewalls.list",
            {"project": self._project, "filter": f'name eq "{prefix}.*"'},
            what="looking for firewall rules",
        )
        return (rule for page in pages for rule in page.items)


def _is_same(found: Any, rule: Mapping[str, Any]) -> bool:
    """Whether a rule lets the same traffic through as ours does."""
    return (
        set(found.source_ranges) == set(rule["source_ranges"])
        and list(found.target_tags) == rule["target_tags"]
        and found.priority == rule["priority"]
        and not found.disabled
        and _entries(found.allowed) == _wanted_entries(rule.get("allowed", []))
        and _entries(found.denied) == _wanted_entries(rule.get("denied", []))
    )


def _entries(found: Iterable[Any]) -> list[tuple[str, list[str]]]:
    return [(entry.I_p_protocol, list(entry.ports)) for entry in found]


def _wanted_entries(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(entry["I_p_protocol"], list(entry.get("ports", []))) for entry in entries]
