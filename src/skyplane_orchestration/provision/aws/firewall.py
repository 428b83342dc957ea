"""The network of a region, and the firewall of a fleet in it.

The firewall is one security group in each region, with a name made of the fleet's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.aws.client import AwsApi
from skyplane_orchestration.provision.aws.options import ALPHABET, as_mapping, filter_of, for_fleet
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.ingress_rules import normal
from skyplane_orchestration.provision.fleet.machines import FleetTags, Ingress

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, SecurityGroupTypeDef

#: Codes of RunInstances, and of the calls for groups.
NO_GROUP: Final = frozenset({"InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound"})
_TCP: Final = "tcp"
#: Description of the rules for workers.
_WORKER: Final = "worker"
#: Most readings until AWS shows rules as they were set, and the waits between them.
_RULE_WAITS_S: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

#: A rule as AWS describes it, with one source.
_Permission = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet and its zone (`eu-west-3a`)."""

    subnet_id: str
    zone: str


@dataclass(frozen=True, slots=True)
class Network:
    """The VPC of a region, and its subnets in the order of the options, or else of zones."""

    vpc_id: str
    subnets: tuple[Subnet, ...]


class Networks:
    """Networks of regions; AWS is asked once for each. Threads may share it."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._known: AnswerCache[str, Network] = AnswerCache()

    def of(self, region: str) -> Network:
        """Raises ConfigurationInvalid: no default VPC, or subnets of several VPCs."""
        return self._known.get(region, lambda: self._look_up(region))

    def _look_up(self, region: str) -> Network:
        wanted = self._api.options.subnets.get(region, ())
        default = [{"Name": "default-for-az", "Values": ["true"]}]
        which: dict[str, Any] = {"SubnetIds": list(wanted)} if wanted else {"Filters": default}
        what = f"looking for the subnets of {region}"
        answer = self._api.call(what, region, "describe_subnets", **which)
        found = {entry["SubnetId"]: entry for entry in answer["Subnets"]}
        if not found:
            raise ConfigurationInvalid(
                f"{region} has no default VPC with subnets; give the setting subnets of aws some"
                f" for {region}, or exclude the region from plans"
            )
        if len({entry["VpcId"] for entry in found.values()}) > 1:
            raise ConfigurationInvalid(
                f"subnets of aws for {region} are of several VPCs; a fleet is in one VPC per region"
            )
        order = wanted or sorted(found, key=lambda one: found[one]["AvailabilityZone"])
        return Network(
            vpc_id=next(iter(found.values()))["VpcId"],
            subnets=tuple(Subnet(one, found[one]["AvailabilityZone"]) for one in order),
        )


class SecurityGroups:
    """The security groups of fleets. Threads may share it."""

    def __init__(self, api: AwsApi, networks: Networks) -> None:
        self._api = api
        self._networks = networks
        self._ids: dict[tuple[str, str], str] = {}

    def ensure(self, fleet: FleetTags, region: str) -> None:
        """Make the group, unless it is there."""
        if self._find(fleet.fleet_key, region) is None and not self._is_made(fleet, region):
            self._adopt(fleet, region)

    def admit(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`. Raises CloudUnavailable: the group is gone."""
        group = self._required(fleet, region)
        workers, _, _ = _rules(group)
        lacking = normal(ingress) - workers
        self._authorize(group["GroupId"], region, lacking, _WORKER)

    def set_ingress(self, fleet: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        """See `Machines`. Raises CloudUnavailable: the group is gone.

        AWS may show old ones for a while, so they are changed until it shows these.
        """
        wanted = normal(ingress)
        for wait_s in (*_RULE_WAITS_S, None):
            group = self._required(fleet, region)
            workers, peers, others = _rules(group)
            lacking = wanted - workers - peers
            closed = sorted(peers - wanted)
            if not (lacking or closed or others):
                return
            if wait_s is None:
                break
            # The new ones first, so that no rule is missing in between.
            self._authorize(group["GroupId"], region, lacking)
            self._change(
                f"closing the security group {group['GroupId']} in {region}",
                region,
                "revoke_security_group_ingress",
                group["GroupId"],
                [*map(_permission, closed), *others],
                "InvalidPermission.NotFound",
            )
            self._api.clock.sleep(wait_s)
        raise CloudUnavailable(
            f"AWS does not show the rules that were set for fleet {fleet.fleet_key} in {region};"
            " try again"
        )

    def group_id(self, fleet: FleetTags, region: str) -> str:
        """The id of a group that `ensure` has made. Raises CloudUnavailable: it is gone."""
        known = self._ids.get((fleet.fleet_key, region))
        return known or self._required(fleet, region)["GroupId"]

    def forget(self, fleet_key: str, region: str) -> None:
        """Ask AWS for the group when it is needed again."""
        self._ids.pop((fleet_key, region), None)

    def _required(self, fleet: FleetTags, region: str) -> SecurityGroupTypeDef:
        group = self._api.until_visible(lambda: self._find(fleet.fleet_key, region))
        if group is None:
            raise torn_down(f"the security group of fleet {fleet.fleet_key} in {region}")
        return group

    def _find(self, fleet_key: str, region: str) -> SecurityGroupTypeDef | None:
        """By the fleet's tag; None if AWS shows no such group in our VPC."""
        vpc_id = self._networks.of(region).vpc_id
        filters = filter_of("fleet", fleet_key)
        group: SecurityGroupTypeDef
        for group in self._api.listed("security groups", region, filters):
            if group.get("VpcId") == vpc_id:
                self._ids[fleet_key, region] = group["GroupId"]
                return group
        return None

    def _is_made(self, fleet: FleetTags, region: str) -> bool:
        """Make the group; False if there is one of its name."""
        named = for_fleet(fleet, self._api.options.user_tags)
        try:
            answer = self._api.call(
                f"making the security group of fleet {fleet.fleet_key} in {region}",
                region,
                "create_security_group",
                expected={"InvalidGroup.Duplicate"},
                GroupName=_group_name(fleet.fleet_key),
                Description="Gateways of one skyplane-orchestration fleet",
                VpcId=self._networks.of(region).vpc_id,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": named}],
            )
        except CloudRefusal:
            return False
        self._ids[fleet.fleet_key, region] = answer["GroupId"]
        return True

    def _adopt(self, fleet: FleetTags, region: str) -> None:
        """Take the group that another worker has made, once AWS shows it."""
        name, vpc_id = _group_name(fleet.fleet_key), self._networks.of(region).vpc_id
        filters: list[FilterTypeDef] = [
            {"Name": "group-name", "Values": [name]},
            {"Name": "vpc-id", "Values": [vpc_id]},
        ]
        group: SecurityGroupTypeDef | None = self._api.until_visible(
            lambda: next(self._api.listed("security groups", region, filters), None)
        )
        if group is None:
            raise CloudUnavailable(
                f"AWS says that the security group {name} exists in {region}, and does not show"
                " it; try again"
            )
        what = f"the security group {name} of {vpc_id} in {region}"
        ALPHABET.check_owner(what, as_mapping(group.get("Tags", [])), fleet)
        self._ids[fleet.fleet_key, region] = group["GroupId"]

    def _authorize(
        self, group_id: str, region: str, wanted: frozenset[Ingress], description: str = ""
    ) -> None:
        self._change(
            f"opening the security group {group_id} in {region}",
            region,
            "authorize_security_group_ingress",
            group_id,
            [_permission(rule, description) for rule in sorted(wanted)],
            "InvalidPermission.Duplicate",
        )

    def _change(
        self,
        what: str,
        region: str,
        operation: str,
        group_id: str,
        rules: Sequence[_Permission],
        is_done: str,
    ) -> None:
        """Add or remove rules; `is_done` is the code for a rule that is as wanted already.

        AWS refuses all rules of a call for one of them, so then each gets a call.
        """
        if not rules:
            return
        try:
            self._api.call(
                what,
                region,
                operation,
                missing=NO_GROUP,
                expected={is_done},
                GroupId=group_id,
                IpPermissions=rules,
            )
        except CloudRefusal as refusal:
            if refusal.code != is_done:
                raise CloudUnavailable(f"{what}: the group is gone; try again") from refusal
            if len(rules) > 1:
                for rule in rules:
                    self._change(what, region, operation, group_id, [rule], is_done)


def _group_name(fleet_key: str) -> str:
    return f"skyplane-{fleet_key}"


def _permission(rule: Ingress, description: str = "") -> _Permission:
    named = {"Description": description} if description else {}
    return {
        "IpProtocol": _TCP,
        "FromPort": rule.first_port,
        "ToPort": rule.last_port,
        "IpRanges": [{"CidrIp": rule.source_cidr, **named}],
    }


def _rules(
    group: SecurityGroupTypeDef,
) -> tuple[set[Ingress], set[Ingress], list[_Permission]]:
    """Those for workers, those for peers, and the others as AWS lists them."""
    workers: set[Ingress] = set()
    peers: set[Ingress] = set()
    others: list[_Permission] = []
    for entry in group.get("IpPermissions", []):
        permission = cast("_Permission", entry)
        head: _Permission = {
            name: permission[name]
            for name in ("IpProtocol", "FromPort", "ToPort")
            if name in permission
        }
        for kind in ("IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds"):
            for source in permission.get(kind, []):
                if kind == "IpRanges" and head["IpProtocol"] == _TCP:
                    its = workers if source.get("Description") == _WORKER else peers
                    its.add(Ingress(head["FromPort"], head["ToPort"], source["CidrIp"]))
                else:
                    named = {name: text for name, text in source.items() if name != "Description"}
                    others.append({**head, kind: [named]})
    return workers, peers, others
