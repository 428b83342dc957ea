"""The policy of the documentation has every action that is called, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.exceptions import ClientError
from tests.clouds.fakes import aws_policy
from tests.provision.aws.harness import REGISTRY_ROLE, AwsHarness
from tests.provision.aws.samples import (
    ARM_TYPE,
    FLEET,
    REGION,
    X86_TYPE,
    a_request,
    prepared,
)

from skyplane_gateway.stores import Credentials, Reach, StoreSpec, limited_credentials
from skyplane_orchestration.provision.aws.checks import UNTRIED
from skyplane_orchestration.provision.fleet.machines import Ingress
from strict_clouds.ec2 import StrictEc2
from strict_clouds.ec2_moto import backend_of
from strict_clouds.iam import policy_of

ANY = "0.0.0.0/0"


@pytest.fixture
def statements(repository: Path) -> list[dict[str, Any]]:
    text = (repository / "docs/reference/permissions/aws.json").read_text()
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


@pytest.fixture
def allowed(statements: list[dict[str, Any]]) -> set[str]:
    actions = [one["Action"] for one in statements]
    return {name for one in actions for name in ([one] if isinstance(one, str) else one)}


def use_everything(harness: AwsHarness) -> None:
    """Every call that the code can make."""
    options: dict[str, Any] = {
        "instance_profile": "gateways",
        "registry_identity": "puller",
        "spot_relays": True,
    }
    cloud = harness.aws(**options)
    cloud.check()
    cloud.regions()
    cloud.quotas([REGION])
    cloud.quota_uses([REGION])
    prepared(cloud)
    launched = [cloud.launch(a_request(is_end=True)), cloud.launch(a_request(instance="aws:r/1"))]
    own_image = harness.aws(**options, images={REGION: harness.make_image("x86_64")})
    launched.append(own_image.launch(a_request(instance="aws:r/2", instance_type=X86_TYPE)))
    cloud.pin_key(launched[0], "ab")
    for peers in ([Ingress(7602, 7602, "203.0.113.7/32")], []):
        cloud.set_ingress(FLEET, REGION, peers)
    cloud.console_tail(launched[0], 100)
    harness.leave_a_disk(launched[0])
    harness.leave_an_interface(launched[0])
    cloud.terminate(launched)
    cloud.describe(FLEET.fleet_key, [REGION])
    cloud.list_resources(FLEET.deployment, [REGION])
    limit_a_session(harness.ec2)
    assert cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION])) == ()


def limit_a_session(ec2: StrictEc2) -> None:
    """As for the gateways of an IAM user."""
    user = Credentials(ec2.principals.user(aws_policy(FLEET.deployment)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_STS", ec2.url)
        limited_credentials(user, [Reach(StoreSpec("s3", "bucket"), ("folder/",), writes=True)])


def test_what_is_called_is_what_the_policy_allows(harness: AwsHarness, allowed: set[str]) -> None:
    with harness.instance_profile("gateways"), harness.instance_profile("puller", REGISTRY_ROLE):
        use_everything(harness)
    assert harness.ec2.used_actions == allowed
    assert harness.leftovers() == {}
    asked = harness.ec2.accesses
    for statement in policy_of(aws_policy(FLEET.deployment)).statements:
        narrower = [
            *(replace(statement, actions=(action,)) for action in statement.actions),
            *(replace(statement, resources=(arn,)) for arn in statement.resources),
        ]
        for part in narrower:
            assert any(part.allows(access) for access in asked), f"nobody needs {part}"


def test_each_action_is_justified_in_the_page(repository: Path, allowed: set[str]) -> None:
    page = (repository / "docs/reference/permissions-aws.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row[1].split("`") if ":" in name}
    assert named == allowed


class Outside:
    """Requests with the credentials of `prod`, for what is not of this deployment."""

    def __init__(self, harness: AwsHarness) -> None:
        self.harness = harness
        self.ec2: Any = boto3.client(
            "ec2", endpoint_url=harness.ec2.url, region_name=REGION.partition(":")[2]
        )
        cloud = prepared(harness.aws())
        self.ours = cloud.launch(a_request()).cloud_id
        harness.launch_foreign("theirs")
        (self.theirs,) = {one.id for one in harness.ec2.instances()} - {self.ours}
        groups = self.ec2.describe_security_groups()["SecurityGroups"]
        (self.group,) = (one["GroupId"] for one in groups if one["GroupName"] == "theirs")
        self.moto = backend_of(REGION.partition(":")[2])
        # Another deployment of this library has the same tags, with another value.
        self.moto.create_tags([self.theirs, self.group], {"skyplane:deployment": "other"})

    def tags(self, without: str = "", deployment: str = "prod") -> list[dict[str, Any]]:
        """TagSpecifications of a launch."""
        kinds = ("instance", "volume", "network-interface", "spot-instances-request")
        named = [{"Key": "skyplane:deployment", "Value": deployment}]
        return [{"ResourceType": kind, "Tags": named} for kind in kinds if kind != without]

    def launch(self, **changes: Any) -> None:
        subnet_id, _ = self.harness.subnets()[0]
        self.ec2.run_instances(
            **{
                "DryRun": True,
                "ImageId": "ami-01234567",
                "InstanceMarketOptions": {"MarketType": "spot"},
                "InstanceType": ARM_TYPE,
                "MaxCount": 1,
                "MinCount": 1,
                "SubnetId": subnet_id,
                "TagSpecifications": self.tags(),
                **changes,
            }
        )

    def open(self, verb: Callable[..., object]) -> None:
        rule = {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "IpRanges": [{"CidrIp": ANY}]}
        verb(GroupId=self.group, IpPermissions=[rule])

    def tag(self, instance_id: str, name: str) -> None:
        self.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": name, "Value": "x"}])

    def leave(self, kind: str) -> str:
        """Somebody else's volume or interface."""
        if kind == "volume":
            return str(self.moto.create_volume(8, "eu-west-3a").id)
        subnet_id, _ = self.harness.subnets()[0]
        subnet = self.moto.get_subnet(subnet_id)
        return str(self.moto.create_network_interface(subnet, "10.0.0.9").id)


def launch_without(kind: str) -> Callable[[Outside], None]:
    """A launch whose new thing of this kind has no tag."""
    return lambda outside: outside.launch(TagSpecifications=outside.tags(without=kind))


#: Title -> the request, and the action and the kind of resource of the refusal.
OUTSIDE: Final[dict[str, tuple[Callable[[Outside], object], str, str]]] = {
    **{
        f"a launch whose {kind} has no tag": (
            launch_without(kind),
            "RunInstances",
            kind,
        )
        for kind in ("instance", "volume", "network-interface", "spot-instances-request")
    },
    "a launch for another deployment": (
        lambda one: one.launch(TagSpecifications=one.tags(deployment="other")),
        "RunInstances",
        "instance",
    ),
    "a group without tags": (
        lambda one: one.ec2.create_security_group(GroupName="g", Description="d"),
        "CreateSecurityGroup",
        "security-group",
    ),
    "a tag on an instance of another deployment": (
        lambda one: one.tag(one.theirs, "skyplane:key"),
        "CreateTags",
        "instance",
    ),
    "another tag on an instance of ours": (
        lambda one: one.tag(one.ours, "skyplane:deployment"),
        "CreateTags",
        "instance",
    ),
    "the end of an instance of another deployment": (
        lambda one: one.ec2.terminate_instances(InstanceIds=[one.ours, one.theirs]),
        "TerminateInstances",
        "instance",
    ),
    "the console of an instance of another deployment": (
        lambda one: one.ec2.get_console_output(InstanceId=one.theirs),
        "GetConsoleOutput",
        "instance",
    ),
    "a rule for a group of another deployment": (
        lambda one: one.open(one.ec2.authorize_security_group_ingress),
        "AuthorizeSecurityGroupIngress",
        "security-group",
    ),
    "a rule less for a group of another deployment": (
        lambda one: one.open(one.ec2.revoke_security_group_ingress),
        "RevokeSecurityGroupIngress",
        "security-group",
    ),
    "the end of a group of another deployment": (
        lambda one: one.ec2.delete_security_group(GroupId=one.group),
        "DeleteSecurityGroup",
        "security-group",
    ),
    "the end of a volume of nobody": (
        lambda one: one.ec2.delete_volume(VolumeId=one.leave("volume")),
        "DeleteVolume",
        "volume",
    ),
    "the end of an interface of nobody": (
        lambda one: one.ec2.delete_network_interface(
            NetworkInterfaceId=one.leave("network-interface")
        ),
        "DeleteNetworkInterface",
        "network-interface",
    ),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_is_not_of_the_deployment_is_refused(harness: AwsHarness, what: str) -> None:
    attempt, action, kind = OUTSIDE[what]
    outside = Outside(harness)
    with pytest.raises(ClientError) as caught:
        attempt(outside)
    error = caught.value.response["Error"]
    assert error["Code"] == "UnauthorizedOperation"
    assert re.search(f"perform: ec2:{action} on resource: arn:aws:ec2:.*:{kind}/", error["Message"])
    assert len(harness.ec2.instances()) == 2


def test_a_role_of_another_name_is_not_passed(harness: AwsHarness) -> None:
    outside = Outside(harness)
    profile = {"IamInstanceProfile": {"Name": "mine"}}
    with harness.instance_profile("mine"), pytest.raises(ClientError, match="DryRunOperation"):
        outside.launch(**profile)
    with (
        harness.instance_profile("mine", role="admin"),
        pytest.raises(ClientError, match=r"UnauthorizedOperation.*iam:PassRole .*:role/admin"),
    ):
        outside.launch(**profile)


def test_only_public_parameters_are_read(harness: AwsHarness) -> None:
    ssm = boto3.client("ssm", endpoint_url=harness.ec2.url, region_name="eu-west-3")
    with pytest.raises(ClientError, match="AccessDeniedException"):
        ssm.get_parameter(Name="/secrets/password")


def test_the_check_says_which_actions_it_does_not_try(allowed: set[str]) -> None:
    assert set(UNTRIED) < allowed
