"""Networks of the strict Resource Manager: security groups, networks, interfaces, addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from ipaddress import ip_network
from itertools import combinations
from typing import Any, Final

from strict_clouds.arm_state import (
    ADDRESSES,
    FIREWALLS,
    INTERFACES,
    NETWORKS,
    Resource,
    Rule,
    State,
    properties,
)
from strict_clouds.arm_wire import SUBSCRIPTION, ArmError, Reply, Request
from strict_clouds.firewall import IngressRule

_PROVIDER: Final = "Microsoft.Network"
#: Rule -> type, and the code for one in use.
_KINDS: Final = {
    "firewalls": (FIREWALLS, "InUseNetworkSecurityGroupCannotBeDeleted"),
    "networks": (NETWORKS, "InUseSubnetCannotBeDeleted"),
    "interfaces": (INTERFACES, "NicInUse"),
    "addresses": (ADDRESSES, "PublicIPAddressCannotBeDeleted"),
}


class NetworkRules:
    """Args: `changed` is called with a firewall whose rules have changed."""

    def __init__(self, state: State, changed: Callable[[Resource], None]) -> None:
        self._state = state
        self._changed = changed
        self.rules: dict[str, Rule] = {"networks.put": self._put_network}
        self.rules |= {
            "firewalls.put": self._put_firewall,
            "securityRules.get": self._get_rule,
            "securityRules.put": self._put_rule,
            "securityRules.delete": self._delete_rule,
            "interfaces.put": self._put_interface,
            "addresses.put": self._put_address,
            "networkUsages.list": self._usages,
        }
        for rule, (kind, in_use) in _KINDS.items():
            self.rules[f"{rule}.list"] = self._list(kind)
            self.rules[f"{rule}.get"] = self._get(kind)
            self.rules[f"{rule}.delete"] = self._delete(kind, in_use)

    def new_address(self) -> str:
        return f"203.0.113.{self._state.number() % 250 + 1}"

    def _list(self, kind: str) -> Rule:
        def run(request: Request) -> Reply:
            group = request.path.get("group", "")
            if group:
                self._state.group(group)
            return self._state.page(self._state.of_kind(kind, group), request)

        return run

    def _get(self, kind: str) -> Rule:
        def run(request: Request) -> Reply:
            self._state.group(request.path["group"])
            return Reply(body=self._state.required(self._id(kind, request)))

        return run

    def _delete(self, kind: str, in_use: str) -> Rule:
        def run(request: Request) -> Reply:
            self._state.group(request.path["group"])
            resource_id = self._id(kind, request)
            found = self._state.find(resource_id)
            if found is None:
                return Reply(204)
            if self._is_used(kind, resource_id):
                raise ArmError(400, in_use)

            def finish() -> ArmError | None:
                self._state.remove(resource_id)
                if kind == INTERFACES:
                    self.free_addresses(resource_id)
                return None

            return self._state.begin(found["location"], _PROVIDER, finish)

        return run

    def _usages(self, request: Request) -> Reply:
        location = request.path["location"]
        used = sum(one["location"] == location for one in self._state.of_kind(ADDRESSES))
        rows = [
            {
                "id": f"/subscriptions/{SUBSCRIPTION}/providers/{_PROVIDER}/usages/{name}",
                "unit": "Count",
                "name": {"value": name, "localizedValue": shown},
                "currentValue": used,
                "limit": self._state.conditions.quotas.get((location, name), 20),
            }
            for name, shown in (
                ("PublicIPAddresses", "Public IP Addresses"),
                ("StandardSkuPublicIpAddresses", "Standard Sku Public IP Addresses"),
            )
        ]
        return Reply(body={"value": rows})

    def free_addresses(self, interface_id: str) -> None:
        """An interface is gone."""
        for address in self._state.of_kind(ADDRESSES):
            used = (properties(address).get("ipConfiguration") or {}).get("id", "")
            if used.lower().startswith(f"{interface_id.lower()}/"):
                del properties(address)["ipConfiguration"]

    def _is_used(self, kind: str, resource_id: str) -> bool:
        name = resource_id.lower()
        if kind == INTERFACES:
            return "virtualMachine" in properties(self._state.required(resource_id))
        if kind == ADDRESSES:
            return "ipConfiguration" in properties(self._state.required(resource_id))
        for interface in self._state.of_kind(INTERFACES):
            facts = properties(interface)
            if kind == FIREWALLS and facts["networkSecurityGroup"]["id"].lower() == name:
                return True
            subnets = [properties(one)["subnet"]["id"] for one in facts["ipConfigurations"]]
            if kind == NETWORKS and any(one.lower().startswith(f"{name}/") for one in subnets):
                return True
        return False

    def _id(self, kind: str, request: Request) -> str:
        return self._state.id_of(request.path["group"], kind, request.path["name"])

    def _put(self, kind: str, request: Request, more: Mapping[str, Any] | None = None) -> Reply:
        is_new = self._state.find(self._id(kind, request)) is None
        body = dict(request.body)
        body["properties"] = {**body.get("properties", {}), **(more or {})}
        made = self._state.put(request.path["group"], kind, request.path["name"], body)
        return self._state.begin(
            made["location"], _PROVIDER, lambda: None, 201 if is_new else 200, made
        )

    def _put_firewall(self, request: Request) -> Reply:
        self._state.writable_group(request.path["group"])
        found = self._state.find(self._id(FIREWALLS, request))
        self._check_conditions(request, found)
        _check_rules(request.body["properties"]["securityRules"])
        return self._written(request)

    def _get_rule(self, request: Request) -> Reply:
        rules = properties(self._state.required(self._id(FIREWALLS, request)))["securityRules"]
        found = next((one for one in rules if one["name"] == request.path["rule"]), None)
        if found is None:
            raise ArmError(404, "NotFound")
        return Reply(body=found)

    def _put_rule(self, request: Request) -> Reply:
        """Of one rule: the others stay as they are."""
        self._state.writable_group(request.path["group"])
        rule = {"name": request.path["rule"], "properties": request.body["properties"]}
        reply = self._with_rules(request, [*self._other_rules(request), rule])
        return reply if reply.body is None else replace(reply, body=rule)

    def _delete_rule(self, request: Request) -> Reply:
        self._state.writable_group(request.path["group"])
        return replace(self._with_rules(request, self._other_rules(request)), body=None)

    def _other_rules(self, request: Request) -> list[Resource]:
        rules = properties(self._state.required(self._id(FIREWALLS, request)))["securityRules"]
        return [one for one in rules if one["name"] != request.path["rule"]]

    def _with_rules(self, request: Request, rules: list[Resource]) -> Reply:
        _check_rules(rules)
        found = self._state.required(self._id(FIREWALLS, request))
        changed = {**found, "properties": {**properties(found), "securityRules": rules}}
        return self._written(replace(request, body=changed))

    def _written(self, request: Request) -> Reply:
        reply = self._put(FIREWALLS, request)
        self._changed(self._state.required(self._id(FIREWALLS, request)))
        return reply

    def _check_conditions(self, request: Request, found: Resource | None) -> None:
        if request.headers.get("if-none-match") == "*" and found is not None:
            raise ArmError(412, "PreconditionFailed")
        wanted = request.headers.get("if-match")
        if wanted and (found is None or found["etag"] != wanted):
            raise ArmError(412, "PreconditionFailed")

    def _put_network(self, request: Request) -> Reply:
        self._state.writable_group(request.path["group"])
        resource_id = self._id(NETWORKS, request)
        for subnet in request.body["properties"]["subnets"]:
            ip_network(subnet["properties"]["addressPrefix"])
            subnet["id"] = f"{resource_id}/subnets/{subnet['name']}"
        return self._put(NETWORKS, request)

    def _put_address(self, request: Request) -> Reply:
        self._state.writable_group(request.path["group"])
        facts = request.body["properties"]
        if (
            request.body["sku"]["name"] != "Standard"
            or facts["publicIPAllocationMethod"] != "Static"
        ):
            raise ArmError(400, "IPv4BasicSkuPublicIpNotSupported")
        before = self._state.find(self._id(ADDRESSES, request))
        kept = properties(before) if before else {"ipAddress": self.new_address()}
        more = {name: kept[name] for name in ("ipAddress", "ipConfiguration") if name in kept}
        return self._put(ADDRESSES, request, more)

    def _put_interface(self, request: Request) -> Reply:
        self._state.writable_group(request.path["group"])
        facts = request.body["properties"]
        firewall = self._state.find(facts["networkSecurityGroup"]["id"])
        if firewall is None or firewall["location"] != request.body["location"]:
            raise ArmError(400, "InvalidResourceReference", facts["networkSecurityGroup"]["id"])
        resource_id = self._id(INTERFACES, request)
        configurations = [
            self._configuration(resource_id, one, request.body["location"])
            for one in facts["ipConfigurations"]
        ]
        before = self._state.find(resource_id)
        used = properties(before).get("virtualMachine") if before else None
        more: dict[str, Any] = {"ipConfigurations": configurations}
        if used:
            more |= {
                "virtualMachine": used,
                "ipConfigurations": properties(before)["ipConfigurations"] if before else [],
            }
        return self._put(INTERFACES, request, more)

    def _configuration(self, interface_id: str, sent: Resource, location: str) -> Resource:
        facts = sent["properties"]
        subnet_id = facts["subnet"]["id"]
        network_id, _, subnet = subnet_id.rpartition("/subnets/")
        network = self._state.find(network_id)
        if network is None or network["location"] != location:
            raise ArmError(400, "InvalidResourceReference", subnet_id)
        if subnet not in {one["name"] for one in properties(network)["subnets"]}:
            raise ArmError(400, "InvalidResourceReference", subnet_id)
        configuration_id = f"{interface_id}/ipConfigurations/{sent['name']}"
        if "publicIPAddress" in facts:
            address = self._state.find(facts["publicIPAddress"]["id"])
            if address is None:
                raise ArmError(400, "InvalidResourceReference", facts["publicIPAddress"]["id"])
            owner = properties(address).get("ipConfiguration", {}).get("id", configuration_id)
            if owner.lower() != configuration_id.lower():
                raise ArmError(400, "PublicIPAddressInUse")
            properties(address)["ipConfiguration"] = {"id": configuration_id}
            sent_option = facts["publicIPAddress"].get("properties", {}).get("deleteOption")
            properties(address)["deleteOption"] = sent_option or "Detach"
        private = f"10.77.0.{self._state.number() % 250 + 4}"
        return {
            **sent,
            "id": configuration_id,
            "properties": {**facts, "privateIPAddress": private},
        }


def _check_rules(rules: Sequence[Resource]) -> None:
    priorities = [one["properties"]["priority"] for one in rules]
    if len(set(priorities)) != len(priorities):
        raise ArmError(400, "SecurityRuleConflict")
    for one in rules:
        _check_rule(one["properties"])


def _check_rule(facts: Mapping[str, Any]) -> None:
    if not 100 <= facts["priority"] <= 4096:
        raise ArmError(400, "SecurityRuleInvalidPriority")
    has_one = "sourceAddressPrefix" in facts
    if has_one == bool(facts.get("sourceAddressPrefixes")):
        raise ArmError(400, "SecurityRuleInvalidAddressPrefix", "one or several, and not both")
    sources = [ip_network(source) for source in facts.get("sourceAddressPrefixes") or ()]
    # Azure's portal takes no 0.0.0.0/0; `*` is the documented word for all addresses.
    if any(source.prefixlen == 0 for source in sources):
        raise ArmError(400, "SecurityRuleParameterContainsUnsupportedValue")
    if any(one.overlaps(other) for one, other in combinations(sources, 2)):
        raise ArmError(400, "OverlappingSubnetsNotPermittedInSecurityRule")


def openings(firewall: Resource) -> Iterator[IngressRule]:
    """What a security group lets in, by its rules in the order of their priorities.

    Azure's own rules let the virtual network in, unless a rule denies everything before.
    """
    rules = sorted(
        (properties(one) for one in properties(firewall)["securityRules"]),
        key=lambda one: int(one["priority"]),
    )
    for facts in rules:
        if facts["direction"] != "Inbound":
            continue
        sources = facts.get("sourceAddressPrefixes") or [facts["sourceAddressPrefix"]]
        if facts["access"] == "Deny":
            if sources == ["*"] and facts["destinationPortRange"] == facts["protocol"] == "*":
                return
            continue
        first, _, last = facts["destinationPortRange"].partition("-")
        for source in sources:
            every = "0.0.0.0/0" if source == "*" else source
            yield IngressRule(int(first), int(last or first), every)
    yield IngressRule(0, 65535, "10.0.0.0/8")
