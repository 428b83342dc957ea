"""A strict EC2: moto behind rules that moto lacks, with faults on demand.

`with strict_ec2() as ec2:` gives an address (`ec2.url`) for clients of EC2, SSM, STS, S3 and
Service Quotas. See `README.md` for what is strict.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

from strict_clouds import aws_models, s3_access
from strict_clouds.aws_wire import (
    Answer,
    AwsError,
    Environment,
    Request,
    StartResponse,
    error_answer,
    forwarded,
    json_answer,
    read_request,
    respond,
    serving,
    xml_answer,
)
from strict_clouds.ec2_access import accesses_of
from strict_clouds.ec2_groups import GroupRules, Permission, present_rules
from strict_clouds.ec2_instances import InstanceRules
from strict_clouds.ec2_moto import (
    DEBIAN_PARAMETERS,
    ON_DEMAND_QUOTA,
    SPOT_QUOTA,
    Conditions,
    Forward,
    Rule,
    Visibility,
    all_instances,
    backend_of,
    backends,
    debian_image,
)
from strict_clouds.iam import Access, policy_of
from strict_clouds.machines import Machine, MachineBooter
from strict_clouds.principals import Principals
from strict_clouds.schemas import Violations
from strict_clouds.usage import Usage

__all__ = ["Conditions", "StrictEc2", "strict_ec2"]

#: moto behind all fakes of this process; it takes long to make.
_MOTO: Final = DomainDispatcherApplication(create_backend_app)

#: Services with rules or records; requests for others go to moto only.
_SERVICES: Final = ("ec2", "ssm", "sts", "servicequotas")

#: How services refuse what a policy does not allow.
_REFUSALS: Final = {
    "ec2": "UnauthorizedOperation",
    "servicequotas": "AccessDeniedException",
    "ssm": "AccessDeniedException",
    "sts": "AccessDenied",
}

#: Actions that change what an instance's firewall lets in.
_FIREWALL_ACTIONS: Final = (
    "RunInstances",
    "AuthorizeSecurityGroupIngress",
    "RevokeSecurityGroupIngress",
)


@dataclass
class _Fault:
    """What happens to the next calls of an action: an error, or for None a lost reply."""

    action: str
    error: AwsError | None
    times: int
    after: int = 0


class StrictEc2:
    """See the module.

    Attributes:
        url: address of all services.
        conditions: how it behaves.
        calls: all requests, in order.
        accesses: what IAM was asked.
        violations: of AWS's models; some make the end of `strict_ec2` an error.
        principals: users, roles and sessions. Keys of others may do what `policy` allows.
    """

    def __init__(
        self, machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
    ) -> None:
        self.url = ""
        self.conditions = Conditions()
        self.calls: list[Request] = []
        self.accesses: list[Access] = []
        self.violations = Violations()
        self.principals = Principals()
        self._policy = None if policy is None else policy_of(policy)
        self._lock = threading.RLock()
        self._faults: list[_Fault] = []
        visibility = Visibility()
        self._instances = InstanceRules(self.conditions, visibility, machines)
        self._groups = GroupRules(self.conditions, visibility)
        self._rules: dict[str, Rule] = {
            **self._instances.rules,
            **self._groups.rules,
            "DescribeImages": self._describe_images,
            "DescribeRegions": self._describe_regions,
            "GetEbsDefaultKmsKeyId": self._default_disk_key,
            "GetParameter": self._parameter,
            "GetServiceQuota": self._service_quota,
        }

    # What tests do.

    def throttle(self, action: str, times: int = 1, after: int = 0) -> None:
        """Refuse `times` calls of an action, after so many that succeed."""
        error = AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
        self._faults.append(_Fault(action, error, times, after))

    def fail(self, action: str, code: str, status: int = 400, times: int = 1) -> None:
        """Refuse the next calls of an action."""
        self._faults.append(_Fault(action, AwsError(code, status=status), times))

    def lose_reply(self, action: str, times: int = 1) -> None:
        """Carry out the next calls of an action, and break the connection before the answer."""
        self._faults.append(_Fault(action, None, times))

    def garble(self, action: str, times: int = 1) -> None:
        """Answer the next calls of an action as a proxy does that cannot reach AWS."""
        self._faults.append(_Fault(action, AwsError("", status=502), times))

    def show_old_rules(self, times: int = 1) -> None:
        """The next descriptions of groups show the rules as they are now."""
        with self._lock:
            self._groups.show_old_rules(times)

    def actions(self, *names: str) -> list[str]:
        """The actions that were called, in order; only those of `names`, if there are some."""
        with self._lock:
            return [call.action for call in self.calls if not names or call.action in names]

    def requests(self, action: str) -> list[Request]:
        """The requests of an action, in order."""
        with self._lock:
            return [call for call in self.calls if call.action == action]

    @property
    def used_actions(self) -> set[str]:
        """The actions that IAM was asked about."""
        with self._lock:
            return {access.action for access in self.accesses}

    def instances(self, region: str = "") -> list[Any]:
        """moto's instances that have not ended, of one region or of all."""
        with self._lock:
            return self._instances.alive(region)

    def ever_launched(self) -> list[Any]:
        """moto's instances, ended ones included."""
        with self._lock:
            return list(all_instances())

    def machine(self, instance_id: str) -> Machine:
        """The machine of an instance."""
        return self._instances.booted[instance_id]

    def end_by_hand(self, instance_id: str) -> None:
        """End an instance as somebody does in the console; takes effect at once."""
        with self._lock:
            self._instances.end_by_hand(instance_id)

    def open_to(self, region: str) -> set[Permission]:
        """The rules of all groups of a region but the default ones."""
        with self._lock:
            return {
                rule
                for name, backend in backends()
                if name == region
                for groups in backend.groups.values()
                for group in groups.values()
                if group.name != "default"
                for rule in present_rules(group)
            }

    @property
    def usage(self) -> Usage:
        """What it bills."""
        return self._instances.usage

    def leftovers(self) -> dict[str, list[str]]:
        """Everything that exists and that no account has from its beginning, by kind."""
        left: dict[str, list[str]] = defaultdict(list)
        with self._lock:
            for _, backend in backends():
                left["volumes"] += list(backend.volumes)
                left["network-interfaces"] += list(backend.enis)
                left["addresses"] += list(backend.addresses)
                left["key-pairs"] += list(backend.key_pairs)
                for groups in backend.groups.values():
                    for group in groups.values():
                        if group.name != "default":
                            left["security-groups"].append(group.id)
                            left["rules"] += [rule.id for rule in group.ingress_rules]
            left["instances"] = [one.id for one in self._instances.alive()]
        return {kind: names for kind, names in left.items() if names}

    # What clients do.

    def __call__(self, environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        request = read_request(environment)
        if request.service == "s3":
            return self._s3(request, environment, start_response)
        with self._lock:
            try:
                answer = self._answered(request, environment)
            except AwsError as error:
                answer = error_answer(request, error)
        return respond(answer, start_response)

    def _answered(self, request: Request, environment: Environment) -> Answer:
        if request.service not in _SERVICES:
            told = self.principals.answer(request)
            return told or forwarded(_MOTO, environment, request.body)
        self.calls.append(request)
        self.violations.add(request.action, aws_models.of_request(request))
        fault = self._fault(request.action)
        if fault is not None and fault.error is not None:
            raise fault.error
        if request.region in self.conditions.silent_regions:
            raise AwsError("Unavailable", status=503)
        self._require_permission(request)
        if request.action == "RunInstances":
            self._instances.require_offered(request)
        if str(request.parameters.get("DryRun", "")).lower() == "true":
            raise AwsError("DryRunOperation", "Request would have succeeded.", 412)
        self._instances.advance()

        def forward() -> Answer:
            return forwarded(_MOTO, environment, request.body)

        rule = self._rules.get(request.action)
        answer = self.principals.answer(request)
        if answer is None:
            answer = rule(request, forward) if rule is not None else forward()
        if request.action in _FIREWALL_ACTIONS:
            self._instances.set_firewalls()
        self.violations.add(f"answer of {request.action}", aws_models.of_answer(request, answer))
        return Answer(0, b"", "", is_lost=True) if fault is not None else answer

    def _fault(self, action: str) -> _Fault | None:
        for fault in self._faults:
            if fault.action != action or fault.times == 0:
                continue
            if fault.after > 0:
                fault.after -= 1
                continue
            fault.times -= 1
            return fault
        return None

    def _require_permission(self, request: Request) -> None:
        conditions = self.conditions
        for access in accesses_of(request):
            self.accesses.append(access)
            if access.action in conditions.forbidden or request.region in conditions.denied_regions:
                why = "with an explicit deny in a service control policy"
            elif access.action in conditions.denied or not self._allows(request, access):
                why = f"because no identity-based policy allows the {access.action} action"
            else:
                continue
            raise AwsError(
                _REFUSALS[request.service],
                "You are not authorized to perform this operation. User:"
                f" arn:aws:sts::{DEFAULT_ACCOUNT_ID}:user/moto is not authorized to perform:"
                f" {access.action} on resource: {access.resource} {why}."
                " Encoded authorization failure message: c2VjcmV0",
                403,
            )

    def _allows(self, request: Request, access: Access) -> bool:
        caller = self.principals.of(request.key_id)
        if caller is not None:
            return caller.allows(access)
        return self._policy is None or self._policy.allows(access)

    def _s3(
        self, request: Request, environment: Environment, start_response: StartResponse
    ) -> Iterable[bytes]:
        """moto's answer, where the caller is none of the account or may have it."""
        body = {"wsgi.input": BytesIO(request.body), "CONTENT_LENGTH": str(len(request.body))}
        try:
            caller = self.principals.of(request.key_id)
            if caller is None:
                told: Iterable[bytes] = _MOTO({**environment, **body}, start_response)
                return told
            asked = list(s3_access.accesses_of(environment))
            self.accesses += asked
            if not all(map(caller.allows, asked)):
                raise AwsError("AccessDenied", "Access Denied", 403)
            answer: list[Any] = []
            parts: list[bytes] = list(
                _MOTO({**environment, **body}, lambda *head: answer.extend(head))
            )
            is_missing = answer[0].startswith("404") and s3_access.place_of(environment)[1]
            if is_missing and not caller.allows(s3_access.may_see_missing(environment)):
                raise AwsError("AccessDenied", "Access Denied", 403)
        except AwsError as error:
            return respond(error_answer(request, error), start_response)
        start_response(*answer)
        return parts

    def _describe_regions(self, request: Request, _: Forward) -> Answer:
        wanted = set(request.listed("Filter.1.Value"))
        rows = "".join(
            f"<item><regionName>{name}</regionName><optInStatus>{status}</optInStatus></item>"
            for name, status in self.conditions.opt_in.items()
            if not wanted or status in wanted
        )
        return xml_answer(request.action, f"<regionInfo>{rows}</regionInfo>")

    def _describe_images(self, request: Request, forward: Forward) -> Answer:
        for image in backend_of(request.region).amis.values():
            # moto calls the disk of an image `standard`, which EC2 does not know.
            image.root_device_type = "ebs"
        return forward()

    def _default_disk_key(self, request: Request, _: Forward) -> Answer:
        return xml_answer(
            request.action, f"<kmsKeyId>{self.conditions.default_disk_key}</kmsKeyId>"
        )

    def _parameter(self, request: Request, forward: Forward) -> Answer:
        name = str(request.parameters["Name"])
        architecture = DEBIAN_PARAMETERS.get(name)
        if architecture is None:
            return forward()
        value = debian_image(request.region, architecture)
        return json_answer({"Parameter": {"Name": name, "Type": "String", "Value": value}})

    def _service_quota(self, request: Request, _: Forward) -> Answer:
        code = request.parameters["QuotaCode"]
        if request.parameters["ServiceCode"] != "ec2" or code not in (ON_DEMAND_QUOTA, SPOT_QUOTA):
            raise AwsError("NoSuchResourceException")
        conditions = self.conditions
        value = conditions.told_quotas.get(
            (request.region, code), conditions.quota(request.region, code)
        )
        return json_answer(
            {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "Value": float(value)}}
        )


@contextmanager
def strict_ec2(
    machines: MachineBooter | None = None, policy: Mapping[str, Any] | None = None
) -> Iterator[StrictEc2]:
    """An EC2 without instances; moto's EC2 of this process is emptied at both ends.

    Args:
        policy: the document of the caller's identity policy; None allows everything.

    Raises PolicyInvalid: the policy has something that `iam` does not know.
    """
    _empty()
    ec2 = StrictEc2(machines, policy)
    with serving(ec2) as url:
        ec2.url = url
        yield ec2
    _empty()
    ec2.violations.require_none()


def _empty() -> None:
    for _, backend in backends():
        backend.reset()
