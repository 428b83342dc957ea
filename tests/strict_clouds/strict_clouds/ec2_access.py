"""What IAM is asked for a request to AWS: actions, resources and their context.

It follows "Actions, resources, and condition keys for Amazon EC2" of the Service Authorization
Reference and "Grant permission to tag Amazon EC2 resources during creation" of EC2's guide
(docs.aws.amazon.com, as read on 2026-11-25), for the requests that fleets make. Required resource
types are asked one by one: a policy has to allow each. Tags of new things are those that the
request has for this type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.iam.models import iam_backends

from strict_clouds.aws_wire import AwsError, Request
from strict_clouds.ec2_moto import asked_tags, backend_of, tags_of
from strict_clouds.iam import Access

#: Action -> the parameter that names the things it is about.
_ON_EXISTING: Final = {
    "AuthorizeSecurityGroupIngress": "GroupId",
    "CreateTags": "ResourceId",
    "DeleteNetworkInterface": "NetworkInterfaceId",
    "DeleteSecurityGroup": "GroupId",
    "DeleteVolume": "VolumeId",
    "GetConsoleOutput": "InstanceId",
    "RevokeSecurityGroupIngress": "GroupId",
    "TerminateInstances": "InstanceId",
}
#: Begin of an id -> the type in its ARN.
_TYPES: Final = {
    "ami": "image",
    "eni": "network-interface",
    "i": "instance",
    "sg": "security-group",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
}
_LAUNCHED: Final = ("instance", "network-interface", "volume")
_SPOT: Final = "spot-instances-request"
_PUBLIC_PARAMETERS: Final = "/aws/service/"


def accesses_of(request: Request) -> Iterator[Access]:
    """All that has to be allowed for a request.

    A thing that does not exist has no tags to look at, so nothing is asked about it: the request
    is refused anyway, because of that.
    """
    action = f"{request.service}:{request.action}"
    if action == "ec2:RunInstances":
        yield from _launch(request, action)
    elif action == "ec2:CreateSecurityGroup":
        yield from _created(request, action, ["security-group"])
        yield _existing(request, action, str(request.parameters.get("VpcId") or _vpc(request)))
    elif request.service == "ec2" and request.action in _ON_EXISTING:
        yield from _on_existing(request, action)
    elif action == "ssm:GetParameter":
        name = str(request.parameters["Name"])
        account = "" if name.startswith(_PUBLIC_PARAMETERS) else DEFAULT_ACCOUNT_ID
        arn = f"arn:aws:ssm:{request.region}:{account}:parameter/{name.removeprefix('/')}"
        yield Access(action, arn)
    elif action == "sts:GetFederationToken":
        name = request.parameters["Name"]
        yield Access(action, f"arn:aws:sts::{DEFAULT_ACCOUNT_ID}:federated-user/{name}")
    # A role that its own trust policy names needs no other permission to assume itself.
    elif action != "sts:AssumeRole":
        yield Access(action)


def _launch(request: Request, action: str) -> Iterator[Access]:
    parameters = request.parameters
    is_spot = parameters.get("InstanceMarketOptions.MarketType") == "spot"
    yield from _created(request, action, [*_LAUNCHED, *([_SPOT] if is_spot else ())])
    yield _existing(request, action, str(parameters["ImageId"]))
    subnet_id = str(
        parameters.get("NetworkInterface.1.SubnetId") or parameters.get("SubnetId") or ""
    )
    if subnet_id:
        yield _existing(request, action, subnet_id)
    groups = request.listed("NetworkInterface.1.SecurityGroupId") or request.listed(
        "SecurityGroupId"
    )
    # That of the VPC, whose id nothing depends on.
    for group_id in groups or ["sg-default"]:
        yield _existing(request, action, group_id)
    profile = parameters.get("IamInstanceProfile.Name") or parameters.get("IamInstanceProfile.Arn")
    if profile:
        for arn in _role_arns(str(profile)):
            yield Access("iam:PassRole", arn, {"iam:PassedToService": ("ec2.amazonaws.com",)})


def _created(request: Request, action: str, kinds: list[str]) -> Iterator[Access]:
    """New things, and tags on them."""
    for kind in kinds:
        tags = asked_tags(request, kind)
        context = _request_tags(tags)
        arn = _arn(request, kind, "*")
        yield Access(action, arn, context)
        if tags:
            made_by = {"ec2:CreateAction": (request.action,)}
            yield Access("ec2:CreateTags", arn, {**context, **made_by})


def _on_existing(request: Request, action: str) -> Iterator[Access]:
    name = _ON_EXISTING[request.action]
    asked = request.parameters.get(name)
    for resource_id in [str(asked)] if asked else request.listed(name):
        if _exists(request, resource_id):
            yield _existing(request, action, resource_id, tags_of(request, "Tag."))


def _existing(
    request: Request, action: str, resource_id: str, tags: Mapping[str, str] | None = None
) -> Access:
    held = backend_of(request.region).tags.get(resource_id, {})
    context = {f"aws:ResourceTag/{name}": (value,) for name, value in held.items()}
    arn = _arn(request, _TYPES[resource_id.partition("-")[0]], resource_id)
    return Access(action, arn, {**context, **_request_tags(tags or {})})


def _request_tags(tags: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    if not tags:
        return {}
    context = {f"aws:RequestTag/{name}": (value,) for name, value in tags.items()}
    return {**context, "aws:TagKeys": tuple(tags)}


def _arn(request: Request, kind: str, name: str) -> str:
    # Images may be of any account, and have none in their ARN.
    account = "" if kind == "image" else DEFAULT_ACCOUNT_ID
    return f"arn:aws:ec2:{request.region}:{account}:{kind}/{name}"


def _exists(request: Request, resource_id: str) -> bool:
    backend = backend_of(request.region)
    known: dict[str, Any] = {
        "i": {instance.id for instance in backend.all_instances()},
        "sg": {group_id for groups in backend.groups.values() for group_id in groups},
        "vol": backend.volumes,
        "eni": backend.enis,
    }
    return resource_id in known.get(resource_id.partition("-")[0], ())


def _vpc(request: Request) -> str:
    return str(backend_of(request.region).get_default_vpc().id)


def _role_arns(profile: str) -> list[str]:
    """Of the roles of an instance profile, by its name or ARN. Raises AwsError: it has none."""
    name = profile.rpartition("/")[2]
    profiles = iam_backends[DEFAULT_ACCOUNT_ID]["aws"].instance_profiles.values()
    arns = [role.arn for one in profiles if one.name == name for role in one.roles]
    if not arns:
        raise AwsError("InvalidParameterValue", f"{profile} is no instance profile with a role")
    return arns
