"""The resource group of a fleet, and its firewall and network in each region.

The firewall is a network security group. Each of its rules is written alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.azure.client import AzureApi
from skyplane_orchestration.provision.azure.describe import group_of
from skyplane_orchestration.provision.azure.error_mapping import (
    CHANGED,
    GROUP_ENDS,
    NO_GROUP,
    NOT_FOUND,
)
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

#: Of a fleet's own network. Nothing else is ever in it, so all have the same.
_NETWORK_CIDR: Final = "10.77.0.0/16"
_SUBNET_CIDR: Final = "10.77.0.0/18"
_PRIORITIES: Final = {"Allow": range(100, 4000), "Deny": range(4000, 4097)}
_ATTEMPTS: Final = 20
_PRIORITY_TAKEN: Final = "SecurityRuleConflict"
_CLOSED: Final = "deny-everything-else"
#: Begins the names of rules for workers.
_WORKER: Final = "worker-"
_BOTH: Final = {"direction": "Inbound", "sourcePortRange": "*", "destinationAddressPrefix": "*"}
#: Azure's own rules let the virtual network and the load balancer in; this one comes first.
_DENY: Final = {
    **_BOTH,
    "access": "Deny",
    "protocol": "*",
    "destinationPortRange": "*",
    "sourceAddressPrefix": "*",
}
#: Waits until a group of this name is gone, or is known in all regions.
_GROUP_WAITS_S: Final = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)


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

    def ensure(self, fleet: FleetTags, region: str) -> None:
        """Make a closed firewall and a network, unless they are there.

        Raises ConfigurationInvalid: instances could not be reached by private addresses.
        """
        if not self._options.public_address and region not in self._options.subnets:
            raise ConfigurationInvalid(
                f"the setting subnets of azure has none for {region}; without public_address, each"
                " region needs a subnet that the workers and the other regions can reach"
            )
        closed = {"name": _CLOSED, "properties": {**_DENY, "priority": 4096}}
        path = firewall_path(fleet.fleet_key, region)
        self._make(fleet, region, _name_of(fleet, region), path, {"securityRules": [closed]})
        if region in self._options.subnets:
            return
        # Each instance has an address of its own to send from.
        subnet = {"addressPrefix": _SUBNET_CIDR, "defaultOutboundAccess": False}
        properties = {
            "addressSpace": {"addressPrefixes": [_NETWORK_CIDR]},
            "subnets": [{"name": SUBNET, "properties": subnet}],
        }
        what = f"the virtual network of fleet {fleet.fleet_key} in {region}"
        self._make(fleet, region, what, network_path(fleet.fleet_key, region), properties)

    def admit(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`. Raises CloudUnavailable: the firewall is gone."""
        there = self._rules(fleet, region)
        for one in sorted(normal(ingress)):
            name = _WORKER + one.source_cidr.replace(".", "-").replace("/", "-")
            rule = _allow(one.first_port, one.last_port, [one.source_cidr])
            self._ensure_rule(fleet, region, name, rule, there.get(name, {}))

    def set_ingress(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`. Raises CloudUnavailable: the firewall is gone."""
        there = self._rules(fleet, region)
        wanted = {
            f"allow-{first}-{last}": _allow(first, last, sources)
            for (first, last), sources in by_ports(normal(ingress)).items()
        }
        # The new ones first, so that no rule is missing in between.
        for name, rule in {**wanted, _CLOSED: _DENY}.items():
            self._ensure_rule(fleet, region, name, rule, there.get(name, {}))
        for name in set(there) - set(wanted) - {_CLOSED}:
            if not name.startswith(_WORKER):
                path = f"{firewall_path(fleet.fleet_key, region)}/securityRules/{name}"
                what = f"deleting the rule {name} of {_name_of(fleet, region)}"
                self._api.call(what, "DELETE", path, where=region, is_awaited=True)

    def _rules(self, fleet: FleetTags, region: str) -> dict[str, Resource]:
        """Name -> what a rule of the firewall says. Raises CloudUnavailable: it is gone."""
        path = firewall_path(fleet.fleet_key, region)
        found = self._api.find(f"looking for {_name_of(fleet, region)}", path)
        if found is None:
            raise torn_down(_name_of(fleet, region))
        return {one["name"]: properties_of(one) for one in properties_of(found)["securityRules"]}

    def _ensure_rule(
        self, fleet: FleetTags, region: str, name: str, rule: Resource, there: Resource
    ) -> None:
        """Write one rule, unless it is `there`, at a free priority.

        Azure refuses a priority that another rule has, so two workers never share one.
        """
        among = _PRIORITIES[rule["access"]]
        if there.get("priority") in among and rule.items() <= there.items():
            return
        priorities = iter(random.sample(among, _ATTEMPTS))
        firewall = _name_of(fleet, region)

        def attempt() -> None:
            self._api.call(
                f"setting the rule {name} of {firewall}",
                "PUT",
                f"{firewall_path(fleet.fleet_key, region)}/securityRules/{name}",
                {"name": name, "properties": {**rule, "priority": next(priorities)}},
                where=region,
                expected={_PRIORITY_TAKEN, *NOT_FOUND},
                is_awaited=True,
            )

        try:
            while_refused(attempt, self._api.clock, {_PRIORITY_TAKEN}, [0.0] * (_ATTEMPTS - 1))
        except CloudRefusal as refusal:
            raise torn_down(firewall) from refusal

    def _make(
        self, fleet: FleetTags, region: str, what: str, path: str, properties: Resource
    ) -> None:
        """Make a resource, unless it is there. A region may not know a new group yet."""
        if self._api.find(f"looking for {what}", path) is not None:
            return
        request = partial(
            self._api.call,
            f"making {what}",
            "PUT",
            path,
            self._options.body(fleet, region, properties),
            where=region,
            headers={"If-None-Match": "*"},
            expected={NO_GROUP, *CHANGED},
            is_awaited=True,
        )
        try:
            while_refused(request, self._api.clock, {NO_GROUP}, _GROUP_WAITS_S[:4])
        except CloudRefusal as refusal:
            if refusal.code == NO_GROUP:  # Otherwise another worker has made it.
                raise torn_down(f"making {what}: the resource group") from refusal


def _name_of(fleet: FleetTags, region: str) -> str:
    return f"the network security group of fleet {fleet.fleet_key} in {region}"


def _allow(first_port: int, last_port: int, sources: list[str]) -> dict[str, Any]:
    # Azure's word for all addresses goes into no list of ranges.
    is_every = sources == ["0.0.0.0/0"]
    return {
        **_BOTH,
        "access": "Allow",
        "protocol": "Tcp",
        "destinationPortRange": f"{first_port}-{last_port}",
        **({"sourceAddressPrefix": "*"} if is_every else {"sourceAddressPrefixes": sources}),
    }
