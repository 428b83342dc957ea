"""Security groups and tags of the strict EC2."""

from __future__ import annotations

from typing import Any, Final

from strict_clouds.aws_wire import Answer, AwsError, Request
from strict_clouds.ec2_moto import (
    Conditions,
    Forward,
    Rule,
    Visibility,
    backend_of,
    backends,
    check_tags,
    texts_in,
)

#: Rules of a group by default.
MOST_RULES: Final = 60

#: Protocol, first port, last port, source.
Permission = tuple[str, str, str, str]


class GroupRules:
    """New groups are hidden, used ones are kept, and rules are refused as a whole."""

    def __init__(self, conditions: Conditions, visibility: Visibility) -> None:
        self._conditions = conditions
        self._visibility = visibility
        # Group id -> its rules as they were, and for how many descriptions.
        self._old_rules: dict[str, list[Any]] = {}
        self._old_for = 0
        self.rules: dict[str, Rule] = {
            "CreateSecurityGroup": self._create_group,
            "DescribeSecurityGroups": self._describe_groups,
            "AuthorizeSecurityGroupIngress": self._authorize,
            "RevokeSecurityGroupIngress": self._revoke,
            "DeleteSecurityGroup": self._delete_group,
            "CreateTags": self._create_tags,
        }

    def show_old_rules(self, times: int) -> None:
        """The next descriptions show the rules as they are now."""
        self._old_for = times
        self._old_rules = {
            group.id: list(group.ingress_rules)
            for _, backend in backends()
            for groups in backend.groups.values()
            for group in groups.values()
        }

    def _create_group(self, request: Request, forward: Forward) -> Answer:
        check_tags(request)
        answer = forward()
        if answer.status == 200:
            (group_id,) = texts_in(answer.text, "groupId")
            self._visibility.hide(group_id, self._conditions.hidden_for)
        return answer

    def _describe_groups(self, request: Request, forward: Forward) -> Answer:
        backend = backend_of(request.region)
        unseen = [
            (vpc_id, group_id, group)
            for vpc_id, groups in backend.groups.items()
            for group_id, group in groups.items()
            if not self._visibility.sees(group_id)
        ]
        for vpc_id, group_id, _ in unseen:
            del backend.groups[vpc_id][group_id]
        answer = self._as_it_was(request, forward) if self._old_for else forward()
        for vpc_id, group_id, group in unseen:
            backend.groups[vpc_id][group_id] = group
        return answer

    def _as_it_was(self, request: Request, forward: Forward) -> Answer:
        self._old_for -= 1
        now = {}
        for groups in backend_of(request.region).groups.values():
            for group in groups.values():
                now[group] = group.ingress_rules
                group.ingress_rules = self._old_rules.get(group.id, [])
        answer = forward()
        for group, rules in now.items():
            group.ingress_rules = rules
        return answer

    def _authorize(self, request: Request, forward: Forward) -> Answer:
        group = self._group(request)
        asked, has = _asked_rules(request), present_rules(group)
        if asked & has:
            raise AwsError("InvalidPermission.Duplicate")
        if len(asked | has) > MOST_RULES:
            raise AwsError("RulesPerSecurityGroupLimitExceeded")
        return forward()

    def _revoke(self, request: Request, forward: Forward) -> Answer:
        if not _asked_rules(request) <= present_rules(self._group(request)):
            raise AwsError("InvalidPermission.NotFound")
        return forward()

    def _delete_group(self, request: Request, forward: Forward) -> Answer:
        group = self._group(request)
        for interface in backend_of(request.region).enis.values():
            if group.id in [one.id for one in interface.group_set]:
                raise AwsError("DependencyViolation")
        return forward()

    def _group(self, request: Request) -> Any:
        group_id = request.parameters["GroupId"]
        self._visibility.require(group_id, "InvalidGroup.NotFound")
        group = backend_of(request.region).get_security_group_from_id(group_id)
        if group is None:
            raise AwsError("InvalidGroup.NotFound")
        return group

    def _create_tags(self, request: Request, forward: Forward) -> Answer:
        check_tags(request)
        for name in request.listed("ResourceId"):
            self._visibility.require(name, "InvalidInstanceID.NotFound")
        return forward()


def _asked_rules(request: Request) -> set[Permission]:
    """Protocol, ports and source of each rule of a request."""
    rules: set[Permission] = set()
    for name, value in request.starting("IpPermissions.").items():
        number = name.split(".")[1]
        if name.endswith((".CidrIp", ".CidrIpv6", ".GroupId")):
            head = (
                f"IpPermissions.{number}.{part}" for part in ("IpProtocol", "FromPort", "ToPort")
            )
            protocol, first, last = (str(request.parameters.get(part, "")) for part in head)
            rules.add((protocol, first, last, str(value)))
    return rules


def present_rules(group: Any) -> set[Permission]:
    rules: set[Permission] = set()
    for rule in group.ingress_rules:
        head = str(rule.ip_protocol), str(rule.from_port or ""), str(rule.to_port or "")
        source = rule.cidr_ipv4 or rule.cidr_ipv6 or rule.source_group.get("GroupId")
        rules.add((*head, str(source)))
    return rules
