"""The resource group of a fleet, and its firewall and network in each region.

The firewall is a network security group. Its rules are always written as a whole, on the
condition that nobody has changed them meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.azure.describe import group_of
from skyplane_orchestration.provision.azure.error_mapping import CHANGED, GROUP_ENDS, NO_GROUP
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    SUBNET,
    Resource,
    firewall_path,
    group_name,
    network_path,
    properties_of,
)
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.ingress_rules import by_ports, normal
from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress
from skyplane_orchestration.provision.fleet.retries import while_refused

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

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


class FleetNetworks:
    """Groups, firewalls and networks of fleets. Threads may share it."""

    def __init__(self, api: AzureApi) -> None:
        self._api = api
        self._options = api.options

    def ensure_group(self, fleet: FleetTags, region: str) -> None:
        """Make the fleet's resource group, or find it.

        Raises ConfigurationInvalid: there is one of this name without the fleet's tags.
        """
        group, found = group_name(fleet.fleet_key), group_of(self._api, fleet.fleet_key)
        if found and properties_of(found).get("provisioningState") != "Deleting":
            ALPHABET.check_owner(f"the resource group {group}", found.get("tags"), fleet)
            return
        request = partial(
            self._api.call,
            f"making the resource group {group}",
            "PUT",
            f"resourceGroups/{group}",
            self._options.body(fleet, region),
            where=region,
            expected=GROUP_ENDS,
        )
        try:
            while_refused(request, self._api.clock, GROUP_ENDS, _GROUP_WAITS_S)
        except CloudRefusal as refusal:
            raise CloudUnavailable(
                f"the resource group {group} is still being deleted; try again"
            ) from refusal

    def ensure(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """Make firewall and network, or add the rules that the firewall lacks.

        Raises ConfigurationInvalid: instances could not be reached by private addresses.
        """
        if not self._options.public_address and region not in self._options.subnets:
            raise ConfigurationInvalid(
                f"the setting subnets of azure has none for {region}; without public_address, each"
                " region needs a subnet that the workers and the other regions can reach"
            )
        self.write(fleet, region, ingress, is_exact=False)
        if region not in self._options.subnets:
            self._ensure_network(fleet, region)

    def write(
        self, fleet: FleetTags, region: str, ingress: Sequence[Ingress], *, is_exact: bool
    ) -> None:
        """Give the firewall these rules, and no others if that is wanted.

        Raises CloudUnavailable: it is gone, or others keep changing it.
        """
        firewall = f"the network security group of fleet {fleet.fleet_key} in {region}"
        wanted, path = normal(ingress), firewall_path(fleet.fleet_key, region)

        def attempt() -> None:
            found = self._api.find(f"looking for {firewall}", path)
            if found is None and is_exact:
                raise torn_down(firewall)
            have = None if found is None else _ingress_of(found)
            rules = wanted if is_exact or have is None else normal(wanted | have)
            if have == rules:
                return
            body = self._options.body(fleet, region, {"securityRules": _security_rules(rules)})
            condition = {"If-None-Match": "*"}
            if found is not None:
                body["tags"] = found.get("tags") or body["tags"]
                condition = {"If-Match": found["etag"]}
            self._put_in_group(f"setting {firewall}", path, region, body, **condition)

        try:
            while_refused(attempt, self._api.clock, CHANGED, _RULE_WAITS_S)
        except CloudRefusal as refusal:
            raise CloudUnavailable(f"others keep changing {firewall}; try again") from refusal

    def _ensure_network(self, fleet: FleetTags, region: str) -> None:
        path = network_path(fleet.fleet_key, region)
        if self._api.find(f"looking for the virtual network of {region}", path) is not None:
            return
        # Each instance has an address of its own to send from.
        subnet = {"addressPrefix": _SUBNET_CIDR, "defaultOutboundAccess": False}
        properties = {
            "addressSpace": {"addressPrefixes": [_NETWORK_CIDR]},
            "subnets": [{"name": SUBNET, "properties": subnet}],
        }
        body = self._options.body(fleet, region, properties)
        what = f"making the virtual network of fleet {fleet.fleet_key} in {region}"
        self._put_in_group(what, path, region, body)

    def _put_in_group(
        self, what: str, path: str, region: str, body: Resource, **headers: str
    ) -> None:
        """Put a resource into a new group, which not all regions may know yet.

        Raises CloudRefusal: a condition of the headers does not hold.
        """
        request = partial(
            self._api.call,
            what,
            "PUT",
            path,
            body,
            where=region,
            headers=headers,
            expected={NO_GROUP, *CHANGED},
            is_awaited=True,
        )
        try:
            while_refused(request, self._api.clock, {NO_GROUP}, _GROUP_WAITS_S[:4])
        except CloudRefusal as refusal:
            if refusal.code != NO_GROUP:
                raise
            raise torn_down(f"{what}: the resource group") from refusal


def _security_rules(rules: frozenset[Ingress]) -> list[dict[str, Any]]:
    """One rule for each range of ports, with all its sources, and one that denies the rest."""
    opened = [
        _security_rule(f"allow-{ports}", _FIRST_PRIORITY + index, "Allow", "Tcp", ports, sources)
        for index, ((first, last), sources) in enumerate(by_ports(rules).items())
        for ports in [f"{first}-{last}"]
    ]
    return [*opened, _security_rule(_CLOSED, _LAST_PRIORITY, "Deny", "*", "*", [_EVERYWHERE])]


def _security_rule(
    name: str, priority: int, access: str, protocol: str, ports: str, sources: list[str]
) -> dict[str, Any]:
    # Azure's word for all addresses goes into no list of ranges.
    is_every = sources == [_EVERYWHERE]
    return {
        "name": name,
        "properties": {
            "direction": "Inbound",
            "priority": priority,
            "access": access,
            "protocol": protocol,
            "sourcePortRange": "*",
            "destinationPortRange": ports,
            "destinationAddressPrefix": "*",
            **({"sourceAddressPrefix": "*"} if is_every else {"sourceAddressPrefixes": sources}),
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
