"""The check names what is missing, and makes nothing."""

from __future__ import annotations

import pytest
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import REGION

#: Actions that a check can try without a fleet.
TRIED = (
    "ec2:CreateSecurityGroup",
    "ec2:CreateTags",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribeInstances",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:RunInstances",
    "servicequotas:GetServiceQuota",
    "ssm:GetParameter",
)


def test_with_all_permissions_there_is_nothing_to_do(harness: AwsHarness) -> None:
    findings = harness.aws(regions=(REGION,)).check()
    assert [(one.name, one.is_ok) for one in findings] == [
        ("aws credentials", True),
        ("aws permissions", True),
    ]
    assert "arn:aws:sts::123456789012" in findings[0].text
    assert "ec2:TerminateInstances" in findings[1].text
    assert harness.leftovers() == {}


@pytest.mark.parametrize("action", TRIED)
def test_a_missing_permission_is_named(harness: AwsHarness, action: str) -> None:
    harness.ec2.conditions.denied.add(action)
    findings = harness.aws(regions=(REGION,)).check()
    missing = [one for one in findings if not one.is_ok]
    assert missing
    assert all(one.name == "aws permissions" for one in missing)
    assert all(action in one.text for one in missing)
    assert harness.leftovers() == {}


def test_dry_runs_have_the_tag_that_the_policy_asks_for(harness: AwsHarness) -> None:
    harness.aws(regions=(REGION,)).check("prod-eu")
    for name in ("CreateSecurityGroup", "RunInstances"):
        (call,) = [one for one in harness.ec2.calls if one.action == name]
        assert "prod-eu" in str(call), call


def test_the_right_to_pass_the_role_is_tried_with_a_profile(harness: AwsHarness) -> None:
    harness.ec2.conditions.denied.add("iam:PassRole")
    with harness.instance_profile("gateways"):
        findings = harness.aws(regions=(REGION,), instance_profile="gateways").check()
    assert ["iam:PassRole" in one.text for one in findings if not one.is_ok] == [True]


def test_without_credentials_nothing_else_is_tried(harness: AwsHarness) -> None:
    harness.ec2.fail("GetCallerIdentity", "InvalidClientTokenId", 403)
    (finding,) = harness.aws(regions=(REGION,)).check()
    assert (finding.name, finding.is_ok) == ("aws credentials", False)
    assert "correct it" in finding.text
    assert harness.ec2.actions() == ["GetCallerIdentity"]


def test_a_region_without_a_network_is_named(harness: AwsHarness) -> None:
    harness.remove_default_subnets()
    cloud = harness.aws(regions=("aws:us-east-1", REGION))
    names = [one.name for one in cloud.check() if not one.is_ok]
    assert names == [f"aws {REGION}"]


def test_an_own_image_may_be_of_either_architecture(harness: AwsHarness) -> None:
    for architecture in ("arm64", "x86_64"):
        images = {REGION: harness.make_image(architecture)}
        assert all(one.is_ok for one in harness.aws(regions=(REGION,), images=images).check())
    images = {REGION: harness.make_image("i386")}
    (finding,) = [
        one for one in harness.aws(regions=(REGION,), images=images).check() if not one.is_ok
    ]
    assert "is for i386" in finding.text


def test_a_region_without_one_of_the_tried_types_is_checked_with_the_other(
    harness: AwsHarness,
) -> None:
    harness.ec2.fail("DescribeInstanceTypes", "InvalidInstanceType")
    findings = harness.aws(regions=(REGION,)).check()
    assert [(one.name, one.is_ok) for one in findings] == [
        ("aws credentials", True),
        ("aws permissions", True),
    ]


def test_a_region_without_any_of_the_tried_types_is_one_finding(harness: AwsHarness) -> None:
    harness.ec2.fail("DescribeInstanceTypes", "InvalidInstanceType", times=4)
    credentials, other = harness.aws(regions=(REGION,)).check()
    assert credentials.is_ok
    assert (other.name, other.is_ok) == (f"aws {REGION}", False)
    assert "c6in.large" in other.text
