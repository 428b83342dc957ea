"""The check names what is missing, and makes nothing."""

from __future__ import annotations

from typing import Final

import pytest
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import REGION

from skyplane_orchestration.provision.aws.error_mapping import NO_CAPACITY

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
    "ec2:GetEbsDefaultKmsKeyId",
    "ec2:RunInstances",
    "servicequotas:GetServiceQuota",
    "ssm:GetParameter",
)
#: Actions that can be tried without the answer of another one, and that give none.
FIRST: Final = (
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeVolumes",
    "ec2:GetEbsDefaultKmsKeyId",
)
#: Those that need answers -> the actions that give them.
AFTER: Final = {
    "servicequotas:GetServiceQuota": {"ec2:DescribeInstances"},
    "ec2:CreateSecurityGroup": {"ec2:DescribeSubnets"},
    "ec2:RunInstances": {"ec2:DescribeSubnets", "ec2:DescribeInstanceTypes", "ssm:GetParameter"},
}


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
        calls = harness.ec2.requests(name)
        assert calls
        assert all("prod-eu" in str(call) for call in calls)


def test_the_right_to_pass_the_role_is_tried_with_a_profile(harness: AwsHarness) -> None:
    harness.ec2.conditions.denied.add("iam:PassRole")
    with harness.instance_profile("gateways"):
        findings = harness.aws(regions=(REGION,), instance_profile="gateways").check()
    assert ["iam:PassRole" in one.text for one in findings if not one.is_ok] == [True]


def test_the_right_to_pass_the_role_of_the_registry_is_tried_too(harness: AwsHarness) -> None:
    options = {"instance_profile": "gateways", "registry_identity": "puller"}
    with harness.instance_profile("gateways"), harness.instance_profile("puller", role="puller"):
        (bad,) = [one for one in harness.aws(regions=(REGION,), **options).check() if not one.is_ok]
    assert "iam:PassRole" in bad.text
    assert "role/puller" in bad.text


def test_an_own_default_key_of_disks_is_told_with_what_it_needs(harness: AwsHarness) -> None:
    """EC2 takes such a launch, and ends the instance before it runs."""
    key = "arn:aws:kms:eu-west-3:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    harness.ec2.conditions.default_disk_key = key
    findings = harness.aws(regions=(REGION,)).check()
    assert all(one.is_ok for one in findings)
    (warning,) = [one.text for one in findings if one.is_warning]
    for part in (key, "kms:CreateGrant", "kms:GenerateDataKeyWithoutPlaintext", "kms_key_id"):
        assert part in warning
    assert not any(one.is_warning for one in harness.aws(regions=(REGION,), kms_key_id=key).check())


def test_without_credentials_nothing_else_is_tried(harness: AwsHarness) -> None:
    harness.ec2.fail("GetCallerIdentity", "InvalidClientTokenId", 403)
    (finding,) = harness.aws(regions=(REGION,)).check()
    assert (finding.name, finding.is_ok) == ("aws credentials", False)
    assert "correct it" in finding.text
    assert harness.ec2.actions() == ["GetCallerIdentity"]


@pytest.mark.long
@pytest.mark.parametrize("action", sorted({*TRIED, "sts:GetCallerIdentity"} - {"ec2:CreateTags"}))
def test_a_check_that_fails_hides_no_other(harness: AwsHarness, action: str) -> None:
    harness.ec2.fail(action.partition(":")[2], "SomethingNew", times=1000)
    others = {one for one in (*FIRST, *AFTER) if action not in {one, *AFTER.get(one, ())}}
    harness.ec2.conditions.denied |= others
    findings = harness.aws(regions=(REGION,)).check()
    assert findings[0].name == "aws credentials"
    told = [one.text for one in findings if not one.is_ok]
    for expected in {action, *others}:
        assert any(expected in text for text in told), (expected, told)


@pytest.mark.parametrize("zones", ["a", "abc"])
def test_each_subnet_is_tried_where_a_zone_lacks_the_type(harness: AwsHarness, zones: str) -> None:
    """A zone without it is no lack of a permission, and hides nothing."""
    lacking = {f"eu-west-3{letter}/c7gn.large" for letter in zones}
    harness.ec2.conditions.not_offered |= lacking
    harness.ec2.conditions.denied.add("ec2:DescribeVolumes")
    cloud = harness.aws(regions=(REGION,))
    (bad,) = [one for one in cloud.check() if not one.is_ok]
    assert "ec2:DescribeVolumes" in bad.text
    assert len(harness.ec2.requests("RunInstances")) == 3
    harness.ec2.conditions.denied.clear()
    findings = cloud.check()
    assert all(one.is_ok for one in findings)
    assert findings[-1].name == "aws permissions"
    warnings = [one.text for one in findings if one.is_warning]
    assert len(warnings) == (zones == "abc")
    assert all("c7gn.large" in text and "eu-west-3b (Unsupported)" in text for text in warnings)


@pytest.mark.long
@pytest.mark.parametrize("code", sorted(NO_CAPACITY))
def test_codes_of_capacity_count_as_permitted(harness: AwsHarness, code: str) -> None:
    harness.ec2.fail("RunInstances", code, 500, times=3)
    findings = harness.aws(regions=(REGION,)).check()
    assert [one.name for one in findings if not one.is_ok] == []
    (warning,) = [one for one in findings if one.is_warning]
    assert code in warning.text


def test_a_subnet_that_is_not_allowed_is_named_though_others_are(harness: AwsHarness) -> None:
    harness.ec2.fail("RunInstances", "UnauthorizedOperation", 403)
    (bad,) = [one for one in harness.aws(regions=(REGION,)).check() if not one.is_ok]
    assert bad.name == "aws permissions"
    assert "ec2:RunInstances" in bad.text


def test_a_region_without_a_network_is_named(harness: AwsHarness) -> None:
    harness.remove_default_subnets()
    cloud = harness.aws(regions=("aws:us-east-1", REGION))
    names = [one.name for one in cloud.check() if not one.is_ok]
    assert names == [f"aws {REGION}"]


@pytest.mark.parametrize(
    "named",
    [("aws:eu-west-33", REGION), (REGION, "aws:eu-west-33"), (REGION, "aws:af-south-1")],
)
def test_a_region_that_the_account_does_not_have_is_one_finding(
    harness: AwsHarness, named: tuple[str, ...]
) -> None:
    """A wrong name, also as the first one, or a region that is not enabled."""
    (wrong,) = {*named} - {REGION}
    findings = harness.aws(regions=named).check()
    (bad,) = [one for one in findings if not one.is_ok]
    assert bad.name == "aws regions"
    assert f"does not have {wrong}; correct the settings of aws" in bad.text
    assert f"checked in {REGION}" in findings[0].text


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
