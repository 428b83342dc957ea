"""Credentials, retries, and answers of something that is not AWS."""

from __future__ import annotations

import pytest
from tests.ports import free_port
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import FLEET, REGION, prepared

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.aws import AwsCloud, AwsOptions
from skyplane_orchestration.security.store_credentials import CredentialSources


def key_ids(harness: AwsHarness) -> list[str]:
    return [call.key_id for call in harness.ec2.calls]


def test_credentials_are_found_by_reference(
    harness: AwsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAYS_ACCESS_KEY_ID", "from-variables")
    monkeypatch.setenv("GATEWAYS_SECRET_ACCESS_KEY", "x")
    harness.aws(credential_ref="env:GATEWAYS").describe(FLEET.fleet_key, [REGION])
    assert key_ids(harness) == ["from-variables"]


def test_without_credentials_the_error_says_how_to_give_some(
    harness: AwsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(CloudAccessDenied, match="credential_ref"):
        harness.aws().describe(FLEET.fleet_key, [REGION])


def test_an_unknown_profile_is_named(harness: AwsHarness) -> None:
    with pytest.raises(ConfigurationInvalid, match="nobody"):
        harness.aws(credential_ref="profile:nobody").describe(FLEET.fleet_key, [REGION])


def test_credentials_are_read_again_before_they_expire(harness: AwsHarness) -> None:
    read: list[str] = []

    def resolve(text: str, location: Location) -> Credentials:
        read.append(text)
        values = {"access_key_id": f"key-{len(read)}", "secret_access_key": "x"}
        return Credentials(values | {"expires_at": str(int(harness.clock.now_s) + 3600)})

    cloud = AwsCloud(
        AwsOptions(credential_ref="airflow:aws", endpoint_url=harness.ec2.url),
        CredentialSources({"airflow": resolve}),
        harness.clock.clock,
    )
    for wait_s in (0, 3000, 600):
        harness.clock.advance(wait_s)
        cloud.describe(FLEET.fleet_key, [REGION])
    assert key_ids(harness) == ["key-1", "key-1", "key-2"]


def test_nobody_at_the_endpoint_is_an_error_of_the_cloud(harness: AwsHarness) -> None:
    port = free_port()
    cloud = AwsCloud(AwsOptions(endpoint_url=f"http://127.0.0.1:{port}"), clock=harness.clock.clock)
    with pytest.raises(CloudUnavailable, match="check the network"):
        cloud.describe(FLEET.fleet_key, [REGION])


def test_an_answer_that_is_not_of_aws_is_an_error_of_the_cloud(harness: AwsHarness) -> None:
    harness.ec2.garble("DescribeInstances", times=100)
    with pytest.raises(CloudUnavailable, match="does not answer"):
        harness.aws().describe(FLEET.fleet_key, [REGION])
    harness.ec2.garble("DescribeInstances", times=0)


def test_pauses_grow_and_end(harness: AwsHarness) -> None:
    harness.ec2.throttle("DescribeInstances", times=100)
    began_s = harness.clock.now_s
    with pytest.raises(CloudUnavailable, match="RequestLimitExceeded"):
        harness.aws().describe(FLEET.fleet_key, [REGION])
    assert len(harness.ec2.calls) == 9
    assert 1 < harness.clock.now_s - began_s < 90


def test_each_region_is_asked_once_and_at_the_same_time(harness: AwsHarness) -> None:
    cloud = harness.aws()
    regions = ["aws:eu-west-3", "aws:us-east-1", "aws:eu-south-2"]
    cloud.describe(FLEET.fleet_key, regions)
    assert harness.ec2.actions() == ["DescribeInstances"] * 3
    assert {call.region for call in harness.ec2.calls} == {"eu-west-3", "us-east-1", "eu-south-2"}


def test_everything_of_a_deployment_costs_four_calls_per_region(harness: AwsHarness) -> None:
    cloud = prepared(harness.aws())
    before = len(harness.ec2.calls)
    cloud.list_resources(FLEET.deployment, [REGION])
    assert sorted(harness.ec2.actions()[before:]) == [
        "DescribeInstances",
        "DescribeNetworkInterfaces",
        "DescribeSecurityGroups",
        "DescribeVolumes",
    ]


def test_regions_of_the_options_cost_no_call(harness: AwsHarness) -> None:
    assert harness.aws(regions=(REGION,)).regions() == (REGION,)
    assert harness.ec2.calls == []
