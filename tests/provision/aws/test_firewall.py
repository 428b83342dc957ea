"""The security group of a fleet, and the VPC that it is in."""

from __future__ import annotations

import boto3
import pytest
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import FLEET, REGION, WORKERS, prepared

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid, QuotaExceeded
from skyplane_orchestration.provision.fleet.machines import Ingress

PEERS = [Ingress(7602, 7602, f"203.0.113.{number}/32") for number in range(4)]


def test_the_group_has_its_tags_from_the_beginning(harness: AwsHarness) -> None:
    prepared(harness.aws(user_tags={"team": "data"}))
    (made,) = harness.ec2.requests("CreateSecurityGroup")
    values = made.starting("TagSpecification.1.").values()
    assert {"security-group", FLEET.fleet_key, "data"} <= set(values)
    assert made.parameters["GroupName"] == f"skyplane-{FLEET.fleet_key}"
    assert harness.ec2.actions("CreateTags") == []


def test_outgoing_traffic_is_left_as_aws_makes_it(harness: AwsHarness) -> None:
    prepared(harness.aws())
    assert not [name for name in harness.ec2.actions() if "Egress" in name]


def test_a_new_group_costs_five_calls_and_an_old_one_three(harness: AwsHarness) -> None:
    prepared(harness.aws())
    assert harness.ec2.actions() == [
        "DescribeSubnets",
        "DescribeSecurityGroups",
        "CreateSecurityGroup",
        "DescribeSecurityGroups",
        "AuthorizeSecurityGroupIngress",
    ]
    prepared(harness.aws())
    looks = ["DescribeSubnets", "DescribeSecurityGroups", "DescribeSecurityGroups"]
    assert harness.ec2.actions()[5:] == looks


def test_rules_change_in_one_call_each(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    cloud.set_ingress(FLEET, REGION, PEERS[:1])
    before = len(harness.ec2.calls)
    cloud.set_ingress(FLEET, REGION, PEERS[1:])
    assert harness.ec2.actions()[before:] == [
        "DescribeSecurityGroups",
        "AuthorizeSecurityGroupIngress",
        "RevokeSecurityGroupIngress",
        "DescribeSecurityGroups",
    ]


def test_a_rule_that_is_there_already_does_not_keep_the_others_out(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    # AWS describes the group as it was before another worker opened it.
    harness.show_old_rules(PEERS[0])
    cloud.set_ingress(FLEET, REGION, PEERS)
    assert harness.firewall(REGION) == {WORKERS, *PEERS}


def test_rules_that_somebody_added_by_hand_are_removed(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    (group,) = cloud.leftovers(FLEET.fleet_key, [REGION])
    by_hand = boto3.client("ec2", endpoint_url=harness.ec2.url, region_name="eu-west-3")
    by_hand.authorize_security_group_ingress(
        GroupId=group.cloud_id,
        IpPermissions=[
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
            {
                "IpProtocol": "udp",
                "FromPort": 53,
                "ToPort": 53,
                "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
            },
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "UserIdGroupPairs": [{"GroupId": group.cloud_id}],
            },
        ],
    )
    assert len(harness.ec2.open_to("eu-west-3")) == 4
    cloud.set_ingress(FLEET, REGION, [])
    assert harness.ec2.open_to("eu-west-3") == {("tcp", "7600", "7601", "198.51.100.0/24")}


def test_too_many_rules_name_the_quota(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    rules = [Ingress(7600, 7600, f"10.0.{number}.0/24") for number in range(61)]
    with pytest.raises(QuotaExceeded, match=r"L-0EA8095F.*--service-code vpc"):
        cloud.set_ingress(FLEET, REGION, rules)


def test_a_group_of_our_name_without_our_tags_is_not_touched(harness: AwsHarness) -> None:
    harness.make_group(f"skyplane-{FLEET.fleet_key}")
    with pytest.raises(ConfigurationInvalid, match="does not have the tags"):
        prepared(harness.aws())
    assert harness.firewall(REGION) == set()


def test_a_group_that_aws_never_shows_is_an_error_of_the_cloud(harness: AwsHarness) -> None:
    harness.hide_new(1000)
    prepared_by_another = harness.aws()
    with pytest.raises(CloudUnavailable, match="is gone"):
        prepared(prepared_by_another)
    with pytest.raises(CloudUnavailable, match="does not show it"):
        prepared(harness.aws())


def test_the_group_is_in_the_vpc_of_the_subnets(harness: AwsHarness) -> None:
    vpc_id, subnet_id = harness.make_subnet("10.9.0.0/24")
    prepared(harness.aws(subnets={REGION: (subnet_id,)}))
    (made,) = harness.ec2.requests("CreateSecurityGroup")
    assert made.parameters["VpcId"] == vpc_id


def test_subnets_of_two_vpcs_are_refused(harness: AwsHarness) -> None:
    _, subnet_id = harness.make_subnet("10.9.0.0/24")
    default_id, _ = harness.subnets()[0]
    with pytest.raises(ConfigurationInvalid, match="several VPCs"):
        prepared(harness.aws(subnets={REGION: (subnet_id, default_id)}))


def test_a_region_without_default_vpc_needs_subnets(harness: AwsHarness) -> None:
    harness.remove_default_subnets()
    with pytest.raises(ConfigurationInvalid, match=r"no default VPC.*subnets"):
        prepared(harness.aws())


def test_a_subnet_that_does_not_exist_is_named(harness: AwsHarness) -> None:
    with pytest.raises(ConfigurationInvalid, match="subnet-00000000"):
        prepared(harness.aws(subnets={REGION: ("subnet-00000000",)}))
