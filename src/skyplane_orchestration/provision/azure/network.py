"""The resource group of a fleet, and its firewall and network in each region.

The firewall is a network security group. Its rules are always written as a whole, on the
condition that nobody has changed them meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.azure.error_mapping import (
    CHANGED,
    GROUP_ENDS,
    NO_GROUP,
)
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    SUBNET,
    Resource,
    firewall_name,
    group_name,
    network_name,
    properties_of,
    region_name,
)
from skyplane_orchestration.provision.fleet.error_rules import Refusal
from skyplane_orchestration.provision.fleet.ingress_rules import normal
from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.options import AzureOptions

#: Of a fleet's own network. Nothing else is ever in it, so all have the same.
_NETWORK_CIDR: Final = "10.77.0.0/16"
_SUBNET_CIDR: Final = "10.77.0.0/18"
_EVERYWHERE: Final = "0.0.0.0/0"
_FIRST_PRIORITY: Final = 100
_LAST_PRIORITY: Final = 4096
#: Azure's own rules let the virtual network and the load balancer in; this one comes first.
_CLOSED: Final = "deny-everything-else"
#: Waits until a group of this name is gone, or is known in all regions.
_GROUP_WAITS_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)
#: Most attempts to write rules that others write as well.
_RULE_WAITS_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)


class Networks:
    """Groups, firewalls and networks of fleets. Threads may share it."""

    def __init__(self, api: AzureApi, options: AzureOptions) -> None:
        self._api = api
        self._options = options

    def ensure_group(self, fleet: FleetTags, region: str) -> None:
        """Make the fleet's resource group, or find it.

        Raises ConfigurationInvalid: there is one of this name without the fleet's tags.
        """
        group = group_name(fleet.fleet_key)
        resources = self._api.resources
        what, where = f"looking for the resource group {group}", f"the resource group {group}"
        try:
            found = self._api.get(what, where, lambda: resources.resource_groups.get(group))
        except Refusal:
            found = {}
        if found and properties_of(found).get("provisioningState") != "Deleting":
            known = ALPHABET.fleet_of(found.get("tags"))
            if known is None or (known.fleet_key, known.deployment) != (
                fleet.fleet_key,
                fleet.deployment,
            ):
                raise ConfigurationInvalid(
                    f"the resource group {group} does not have the tags of fleet"
                    f" {fleet.fleet_key} of {fleet.deployment!r}; delete it, or give it the tags"
                    " again"
                )
            return
        body = cast(
            "Any",
            {
                "location": region_name(region),
                "tags": ALPHABET.written(fleet, self._options.user_tags),
            },
        )
        for wait_s in _GROUP_WAITS_S:
            try:
                self._api.call(
                    f"making the resource group {group}",
                    region,
                    lambda: resources.resource_groups.create_or_update(group, body),
                    expected=GROUP_ENDS,
                )
            except Refusal:
                self._api.clock.sleep(wait_s)
                continue
            return
        raise CloudUnavailable(f"the resource group {group} is still being deleted; try again")

    def ensure(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Make firewall and network, or add the rules that the firewall lacks.

        Raises ConfigurationInvalid: instances could not be reached by private addresses.
        """
        if not self._options.public_address and region not in self._options.subnets:
            raise ConfigurationInvalid(
                f"subnets of azure has none for {region}; without public_address, instances are"
                " in a subnet that the workers and the other regions reach"
            )
        self._write(fleet, region, ingress, is_exact=False)
        if region not in self._options.subnets:
            self._ensure_network(fleet, region)

    def set_ingress(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Set the rules of the firewall to exactly these. Raises CloudUnavailable: it is gone."""
        self._write(fleet, region, ingress, is_exact=True)

    def firewall_id(self, fleet_key: str, region: str) -> str:
        return (
            f"{self._group_id(fleet_key)}/providers/Microsoft.Network/networkSecurityGroups/"
            f"{firewall_name(region)}"
        )

    def subnet_id(self, fleet_key: str, region: str) -> str:
        """The subnet of the options, or that of the fleet's own network."""
        return self._options.subnets.get(region) or (
            f"{self._group_id(fleet_key)}/providers/Microsoft.Network/virtualNetworks/"
            f"{network_name(region)}/subnets/{SUBNET}"
        )

    def _group_id(self, fleet_key: str) -> str:
        subscription = self._options.subscription_id
        return f"/subscriptions/{subscription}/resourceGroups/{group_name(fleet_key)}"

    def _write(
        self, fleet: FleetTags, region: str, ingress: Sequence[Ingress], *, is_exact: bool
    ) -> None:
        wanted = normal(ingress)
        for wait_s in _RULE_WAITS_S:
            found = self._find(fleet, region)
            if found is None and is_exact:
                raise CloudUnavailable(
                    f"the network security group of fleet {fleet.fleet_key} in {region} is gone;"
                    " another worker may be tearing the fleet down: try again"
                )
            have = None if found is None else _ingress_of(found)
            rules = wanted if is_exact or have is None else normal(wanted | have)
            if have == rules:
                return
            try:
                self._put(fleet, region, rules, found)
            except Refusal:
                # Somebody else has written it; the loop looks at it again.
                self._api.clock.sleep(wait_s)
                continue
            return
        raise CloudUnavailable(
            f"others keep changing the network security group of fleet {fleet.fleet_key} in"
            f" {region}; try again"
        )

    def _find(self, fleet: FleetTags, region: str) -> Resource | None:
        groups = self._api.network.network_security_groups
        name = firewall_name(region)
        try:
            return self._api.get(
                f"looking for the network security group {name}",
                region,
                lambda: groups.get(group_name(fleet.fleet_key), name),
            )
        except Refusal:
            return None

    def _put(
        self,
        fleet: FleetTags,
        region: str,
        rules: frozenset[Ingress],
        found: Resource | None,
    ) -> None:
        """Raises Refusal: it was changed or made meanwhile."""
        groups = self._api.network.network_security_groups
        body: dict[str, Any] = {
            "location": region_name(region),
            "tags": ALPHABET.written(fleet, self._options.user_tags),
            "properties": {"securityRules": _security_rules(rules)},
        }
        condition = {"If-None-Match": "*"} if found is None else {"If-Match": found["etag"]}
        if found is not None:
            body["tags"] = found.get("tags") or body["tags"]
        self._in_group(
            f"setting the network security group of fleet {fleet.fleet_key} in {region}",
            region,
            lambda polling: groups.begin_create_or_update(
                group_name(fleet.fleet_key),
                firewall_name(region),
                cast("Any", body),
                headers=condition,
                polling=polling,
            ),
        )

    def _ensure_network(self, fleet: FleetTags, region: str) -> None:
        networks = self._api.network.virtual_networks
        group, name = group_name(fleet.fleet_key), network_name(region)
        try:
            self._api.get(
                f"looking for the virtual network {name}", region, lambda: networks.get(group, name)
            )
        except Refusal:
            body = cast("Any", self._network_body(fleet, region))
            self._in_group(
                f"making the virtual network of fleet {fleet.fleet_key} in {region}",
                region,
                lambda polling: networks.begin_create_or_update(group, name, body, polling=polling),
            )

    def _network_body(self, fleet: FleetTags, region: str) -> dict[str, Any]:
        return {
            "location": region_name(region),
            "tags": ALPHABET.written(fleet, self._options.user_tags),
            "properties": {
                "addressSpace": {"addressPrefixes": [_NETWORK_CIDR]},
                "subnets": [
                    {
                        "name": SUBNET,
                        "properties": {
                            "addressPrefix": _SUBNET_CIDR,
                            # Each instance has an address of its own to send from.
                            "defaultOutboundAccess": False,
                        },
                    }
                ],
            },
        }

    def _in_group(self, what: str, region: str, begin: Any) -> None:
        """An operation in a new group, which not all regions may know yet.

        Raises Refusal: a condition of the request does not hold.
        """
        for wait_s in _GROUP_WAITS_S[:5]:
            try:
                self._api.finished(what, region, begin, expected={NO_GROUP, *CHANGED})
            except Refusal as refusal:
                if refusal.code != NO_GROUP:
                    raise
                self._api.clock.sleep(wait_s)
                continue
            return
        raise CloudUnavailable(
            f"{what}: the resource group is gone; another worker may be tearing the fleet down:"
            " try again"
        )


def _security_rules(rules: frozenset[Ingress]) -> list[dict[str, Any]]:
    """One rule for each range of ports, with all its sources, and one that denies the rest."""
    sources: dict[tuple[int, int], list[str]] = {}
    for rule in sorted(rules):
        sources.setdefault((rule.first_port, rule.last_port), []).append(rule.source_cidr)
    opened = [
        _security_rule(
            f"allow-{first}-{last}",
            _FIRST_PRIORITY + index,
            access="Allow",
            protocol="Tcp",
            destinationPortRange=f"{first}-{last}",
            **_sources(found),
        )
        for index, ((first, last), found) in enumerate(sorted(sources.items()))
    ]
    closed = _security_rule(
        _CLOSED,
        _LAST_PRIORITY,
        access="Deny",
        protocol="*",
        destinationPortRange="*",
        sourceAddressPrefix="*",
    )
    return [*opened, closed]


def _sources(cidrs: list[str]) -> dict[str, Any]:
    """Of a rule. Azure's word for all addresses goes into no list of ranges."""
    if cidrs == [_EVERYWHERE]:
        return {"sourceAddressPrefix": "*"}
    return {"sourceAddressPrefixes": cidrs}


def _security_rule(name: str, priority: int, **properties: Any) -> dict[str, Any]:
    return {
        "name": name,
        "properties": {
            "direction": "Inbound",
            "priority": priority,
            "sourcePortRange": "*",
            "destinationAddressPrefix": "*",
            **properties,
        },
    }


def _ingress_of(firewall: Resource) -> frozenset[Ingress] | None:
    """The rules of a firewall; None if it has some that we do not write."""
    found: set[Ingress] = set()
    is_closed = False
    for rule in properties_of(firewall).get("securityRules") or ():
        facts = properties_of(rule)
        if rule.get("name") == _CLOSED and facts.get("access") == "Deny":
            is_closed = True
            continue
        first, _, last = str(facts.get("destinationPortRange", "")).partition("-")
        single = facts.get("sourceAddressPrefix", "")
        sources = facts.get("sourceAddressPrefixes") or [_EVERYWHERE if single == "*" else single]
        is_ours = facts.get("access") == "Allow" and facts.get("direction") == "Inbound"
        if not is_ours or not first.isdecimal() or facts.get("protocol") != "Tcp":
            return None
        found |= {Ingress(int(first), int(last or first), source) for source in sources}
    return frozenset(found) if is_closed else None
