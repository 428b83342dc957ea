"""The strict EC2 refuses what AWS refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from strict_clouds.ec2 import StrictEc2, strict_ec2

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REGION = "eu-west-3"


@pytest.fixture
def strict() -> Iterator[StrictEc2]:
    with strict_ec2() as made:
        yield made


@pytest.fixture
def ec2(strict: StrictEc2) -> EC2Client:
    return boto3.client(
        "ec2",
        endpoint_url=strict.url,
        region_name=REGION,
        aws_access_key_id="strict",
        aws_secret_access_key="strict",
        config=Config(retries={"total_max_attempts": 1}),
    )


def refused(call: Any, **arguments: Any) -> str:
    """The code of a refusal."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"]


def subnets(ec2: EC2Client) -> list[str]:
    found = ec2.describe_subnets()["Subnets"]
    return [one["SubnetId"] for one in sorted(found, key=lambda one: one["AvailabilityZone"])]


def launch(ec2: EC2Client, subnet: str = "", group: str = "", **changes: Any) -> dict[str, Any]:
    """Arguments of RunInstances."""
    interface: dict[str, Any] = {
        "DeviceIndex": 0,
        "SubnetId": subnet or subnets(ec2)[0],
        "DeleteOnTermination": True,
        "AssociatePublicIpAddress": True,
    }
    if group:
        interface["Groups"] = [group]
    return {
        "ClientToken": "token",
        "ImageId": "ami-01234567",
        "InstanceType": "c7gn.large",
        "MinCount": 1,
        "MaxCount": 1,
        "NetworkInterfaces": [interface],
        **changes,
    }


def tagged(*kinds: str, **tags: str) -> list[dict[str, Any]]:
    """TagSpecifications."""
    named = [{"Key": key, "Value": value} for key, value in (tags or {"k": "v"}).items()]
    return [{"ResourceType": kind, "Tags": named} for kind in kinds]


def run(ec2: EC2Client, **changes: Any) -> str:
    """The id of a new instance."""
    return ec2.run_instances(**launch(ec2, **changes))["Instances"][0]["InstanceId"]


def state(ec2: EC2Client) -> str:
    (found,) = ec2.describe_instances()["Reservations"]
    return found["Instances"][0]["State"]["Name"]


def test_a_token_outlives_its_instance(ec2: EC2Client) -> None:
    ec2.terminate_instances(InstanceIds=[run(ec2)])
    assert refused(ec2.run_instances, **launch(ec2)) == "IdempotentInstanceTerminated"


def test_a_refused_request_keeps_its_token(strict: StrictEc2, ec2: EC2Client) -> None:
    strict.conditions.full.add(f"{REGION}a")
    assert refused(ec2.run_instances, **launch(ec2)) == "InsufficientInstanceCapacity"
    strict.conditions.full.clear()
    assert refused(ec2.run_instances, **launch(ec2, UserData="x")) == "IdempotentParameterMismatch"
    assert run(ec2).startswith("i-")


def test_new_things_are_hidden(strict: StrictEc2, ec2: EC2Client) -> None:
    strict.conditions.hidden_for = 1
    group = ec2.create_security_group(GroupName="g", Description="d")["GroupId"]
    assert [one["GroupName"] for one in ec2.describe_security_groups()["SecurityGroups"]] == [
        "default"
    ]
    ec2.describe_security_groups(GroupIds=[group])
    instance = run(ec2)
    assert refused(ec2.terminate_instances, InstanceIds=[instance]) == "InvalidInstanceID.NotFound"
    assert len(ec2.describe_instances()["Reservations"]) == 1


def test_an_instance_is_pending_without_a_public_address(ec2: EC2Client) -> None:
    (launched,) = ec2.run_instances(**launch(ec2))["Instances"]
    assert (launched["State"]["Name"], launched.get("PublicIpAddress")) == ("pending", None)
    assert [state(ec2), state(ec2)] == ["pending", "running"]


def test_one_bad_rule_refuses_all(strict: StrictEc2, ec2: EC2Client) -> None:
    group = ec2.create_security_group(GroupName="g", Description="d")["GroupId"]

    def rules(*ports: int) -> Any:
        return [
            {
                "IpProtocol": "tcp",
                "FromPort": port,
                "ToPort": port,
                "IpRanges": [{"CidrIp": "10.0.0.0/8"}],
            }
            for port in ports
        ]

    add, remove = ec2.authorize_security_group_ingress, ec2.revoke_security_group_ingress
    add(GroupId=group, IpPermissions=rules(1))
    assert refused(add, GroupId=group, IpPermissions=rules(1, 2)) == "InvalidPermission.Duplicate"
    assert refused(remove, GroupId=group, IpPermissions=rules(1, 2)) == "InvalidPermission.NotFound"
    assert {rule[1] for rule in strict.open_to(REGION)} == {"1"}
    too_many = rules(*range(2, 63))
    assert refused(add, GroupId=group, IpPermissions=too_many) == (
        "RulesPerSecurityGroupLimitExceeded"
    )


@pytest.mark.parametrize("value", ["aws:eu-west-3/0", "x" * 257])
def test_tags_that_aws_refuses_are_refused(ec2: EC2Client, value: str) -> None:
    instance = run(ec2)
    tags = [{"Key": "k", "Value": value}]
    assert refused(ec2.create_tags, Resources=[instance], Tags=tags) == "InvalidParameterValue"


def test_a_denied_action_is_refused_and_also_a_dry_run_of_it(
    strict: StrictEc2, ec2: EC2Client
) -> None:
    assert refused(ec2.run_instances, **launch(ec2, DryRun=True)) == "DryRunOperation"
    strict.conditions.denied.add("ec2:CreateTags")
    with_tags = launch(ec2, TagSpecifications=tagged("instance"))
    assert refused(ec2.run_instances, **with_tags, DryRun=True) == "UnauthorizedOperation"
    assert strict.leftovers() == {}
    assert {"ec2:RunInstances", "ec2:CreateTags"} <= strict.used_actions


def test_throttling_faults_and_lost_replies(strict: StrictEc2, ec2: EC2Client) -> None:
    strict.throttle("DescribeRegions", times=1, after=1)
    ec2.describe_regions()
    assert refused(ec2.describe_regions) == "RequestLimitExceeded"
    ec2.describe_regions()
    strict.fail("DescribeRegions", "InternalError", 500)
    assert refused(ec2.describe_regions) == "InternalError"
    strict.lose_reply("CreateSecurityGroup")
    with pytest.raises(BotoCoreError):
        ec2.create_security_group(GroupName="g", Description="d")
    assert refused(ec2.create_security_group, GroupName="g", Description="d") == (
        "InvalidGroup.Duplicate"
    )
