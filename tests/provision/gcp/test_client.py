"""Credentials, retries, pages, operations, and answers of something that is not Google."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ports import free_port
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import FLEET, REGION, a_request, prepared

from skyplane_gateway.common.objects import Credentials
from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
)
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.gcp import GcpCloud, GcpOptions
from skyplane_orchestration.security.store_credentials import SCOPES_OPTION, CredentialSources
from strict_clouds.gce import PROJECT


def tokens(harness: GcpHarness) -> list[str]:
    return [call.token for call in harness.gce.calls]


def test_credentials_are_found_by_reference(
    harness: GcpHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAYS_ACCESS_TOKEN", "from-variables")
    harness.gcp(credential_ref="env:GATEWAYS").describe(FLEET.fleet_key, [REGION])
    assert tokens(harness) == ["from-variables"]


def test_tokens_are_asked_for_with_the_scopes_of_compute_engine(harness: GcpHarness) -> None:
    asked: list[Location] = []

    def resolve(text: str, location: Location) -> Credentials:
        asked.append(location)
        return Credentials({"access_token": "token", "expires_at": "32503680000"})

    cloud = GcpCloud(
        GcpOptions(PROJECT, credential_ref="airflow:gcp", endpoint_url=harness.gce.url),
        CredentialSources({"airflow": resolve}),
        harness.clock.clock,
    )
    for _ in range(2):
        cloud.describe(FLEET.fleet_key, [REGION])
    (location,) = asked
    assert location.kind == "gcs"
    assert "https://www.googleapis.com/auth/compute" in location.options[SCOPES_OPTION].split(",")
    assert tokens(harness) == ["token", "token"]


def test_credentials_of_the_process_are_not_sent_to_another_endpoint(
    harness: GcpHarness, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    harness.gcp().describe(FLEET.fleet_key, [REGION])
    assert tokens(harness) == [""]


def test_without_credentials_the_error_says_how_to_give_some(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    with pytest.raises(CloudAccessDenied, match="credential_ref"):
        GcpCloud(GcpOptions(PROJECT)).describe(FLEET.fleet_key, [REGION])


def test_an_unknown_reference_is_named(harness: GcpHarness) -> None:
    with pytest.raises(ConfigurationInvalid, match="nobody"):
        harness.gcp(credential_ref="env:nobody").describe(FLEET.fleet_key, [REGION])


def test_nobody_at_the_endpoint_is_an_error_of_the_cloud(harness: GcpHarness) -> None:
    port = free_port()
    options = GcpOptions(PROJECT, endpoint_url=f"http://127.0.0.1:{port}")
    with pytest.raises(CloudUnavailable, match="check the network"):
        GcpCloud(options, clock=harness.clock.clock).describe(FLEET.fleet_key, [REGION])


def test_an_answer_that_is_not_of_google_is_an_error_of_the_cloud(harness: GcpHarness) -> None:
    harness.gce.fail("instances.aggregatedList", 502, "", times=100)
    with pytest.raises(CloudUnavailable, match="all retries"):
        harness.gcp().describe(FLEET.fleet_key, [REGION])
    assert len(harness.gce.calls) == 9


def test_all_pages_are_read(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    for index in range(5):
        cloud.launch(a_request(instance=f"{REGION}/{index}"))
    harness.gce.conditions.most_per_page = 2
    before = len(harness.gce.calls)
    assert len(cloud.describe(FLEET.fleet_key, [REGION])) == 5
    assert harness.gce.methods()[before:] == ["instances.aggregatedList"] * 3


def test_a_list_without_one_of_the_zones_is_no_list(harness: GcpHarness) -> None:
    prepared(harness.gcp()).launch(a_request())
    harness.gce.conditions.unreachable = {"us-central1-f"}
    with pytest.raises(CloudUnavailable, match="us-central1-f") as caught:
        harness.gcp().describe(FLEET.fleet_key, [REGION])
    assert caught.value.regions == (REGION,)


def test_a_zone_of_another_region_does_not_matter(harness: GcpHarness) -> None:
    """The lists have the zones of all regions, and the fleet has nothing there."""
    harness.gce.conditions.unreachable = {"europe-west1-b", "europe-west1-c"}
    cloud = prepared(harness.gcp())
    launched = cloud.launch(a_request())
    assert [one.cloud_id for one in cloud.describe(FLEET.fleet_key, [REGION])] == [
        launched.cloud_id
    ]
    assert [one.kind for one in cloud.leftovers(FLEET.fleet_key, [REGION])] == ["firewall"]
    instances, _ = cloud.list_resources(FLEET.deployment, [REGION])
    assert len(instances) == 1


def test_a_zone_that_does_not_answer_gets_no_instance(harness: GcpHarness) -> None:
    harness.gce.conditions.unreachable = {"us-central1-a"}
    with pytest.raises(CloudUnavailable, match="us-central1-a"):
        prepared(harness.gcp()).describe(FLEET.fleet_key, [REGION])
    assert "us-central1-b/" in prepared(harness.gcp()).launch(a_request()).cloud_id


def test_an_operation_is_waited_for_at_our_endpoint(harness: GcpHarness) -> None:
    harness.gce.conditions.operation_waits = 3
    prepared(harness.gcp()).launch(a_request())
    assert len(harness.gce.requests("zoneOperations.wait")) == 3


def test_an_operation_that_takes_too_long_is_an_error(harness: GcpHarness) -> None:
    harness.gce.conditions.operation_waits = 10**6
    with pytest.raises(CloudUnavailable, match="has not done it after 600 s"):
        prepared(harness.gcp())
