"""What an instance on Google Cloud is launched with, and how it ends."""

from __future__ import annotations

from typing import Any

import pytest
from tests.provision.fleet.launches import USES_IDENTITY
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import (
    ARM_TYPE,
    FLEET,
    REGION,
    X86_TYPE,
    a_request,
    prepared,
)

from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
    QuotaExceeded,
)


def launched(harness: GcpHarness, *, options: Any = None, **changes: Any) -> dict[str, Any]:
    """The instance as Google was asked for it."""
    prepared(harness.gcp(**(options or {}))).launch(a_request(**changes))
    return dict(harness.gce.requests("instances.insert")[-1].body)


def test_google_deletes_an_instance_at_the_hard_end(harness: GcpHarness) -> None:
    harness.clock.advance(400)
    asked = launched(harness)
    assert asked["scheduling"] == {
        "maxRunDuration": {"seconds": "86000"},
        "instanceTerminationAction": "DELETE",
        "automaticRestart": False,
    }
    harness.gce.advance(85_000)
    assert harness.gce.leftovers().keys() == {"instances", "disks", "firewalls"}
    harness.gce.advance(1_001)
    assert harness.gce.leftovers().keys() == {"firewalls"}


@pytest.mark.parametrize(("left_s", "seconds"), [(-5, "30"), (10**9, str(120 * 86400))])
def test_the_run_time_is_within_the_limits_of_google(
    harness: GcpHarness, left_s: int, seconds: str
) -> None:
    harness.clock.advance(FLEET.hard_end_unix_s - left_s - harness.clock.now_s)
    assert launched(harness)["scheduling"]["maxRunDuration"] == {"seconds": seconds}


@pytest.mark.parametrize("public_address", [True, False])
def test_an_instance_has_an_internal_address_for_the_others_of_its_network(
    harness: GcpHarness, public_address: bool
) -> None:
    cloud = prepared(harness.gcp(public_address=public_address))
    cloud.launch(a_request())
    (found,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert found.internal_address.startswith("10.")
    assert (found.address == found.internal_address) is not public_address


def test_disks_have_the_labels_of_their_instance_and_end_with_it(harness: GcpHarness) -> None:
    asked = launched(harness, options={"user_labels": {"team": "data"}})
    (disk,) = asked["disks"]
    made = disk["initializeParams"]
    assert disk["autoDelete"]
    assert made["labels"] == asked["labels"]
    assert (made["diskSizeGb"], made["labels"]["team"]) == ("10", "data")
    assert made["diskType"].endswith("/pd-balanced")
    assert made["sourceImage"] == "projects/debian-cloud/global/images/family/debian-13"


def test_the_image_fits_the_architecture(harness: GcpHarness) -> None:
    made = launched(harness, instance_type=ARM_TYPE)["disks"][0]["initializeParams"]
    assert made["sourceImage"].endswith("/debian-13-arm64")


def test_an_architecture_without_image_is_refused(harness: GcpHarness) -> None:
    images = {"arm64": "projects/mine/global/images/gateways"}
    with pytest.raises(ConfigurationInvalid, match="no image for x86_64"):
        launched(harness, options={"images": images})


def test_a_key_of_ones_own_encrypts_the_disk(harness: GcpHarness) -> None:
    key = "projects/p/locations/us/keyRings/r/cryptoKeys/k"
    asked = launched(harness, options={"kms_key": key, "disk_gib": 20})
    assert asked["disks"][0]["diskEncryptionKey"] == {"kmsKeyName": key}
    assert asked["disks"][0]["initializeParams"]["diskSizeGb"] == "20"


def test_the_boot_script_is_the_startup_script(harness: GcpHarness) -> None:
    items = {item["key"]: item["value"] for item in launched(harness)["metadata"]["items"]}
    assert items == {"startup-script": "#!/bin/sh\nexit 0\n", "block-project-ssh-keys": "TRUE"}


@pytest.mark.parametrize("is_end", [True, False])
def test_only_ends_have_the_service_account(harness: GcpHarness, is_end: bool) -> None:
    email = "gateways@my-project.iam.gserviceaccount.com"
    asked = launched(harness, options={"service_account": email}, is_end=is_end)
    scope = "https://www.googleapis.com/auth/devstorage.read_write"
    expected = [{"email": email, "scopes": [scope]}] if is_end else None
    assert asked.get("serviceAccounts") == expected


@pytest.mark.parametrize("is_end", [True, False])
def test_instances_without_an_own_account_get_the_one_of_the_registry(
    harness: GcpHarness, is_end: bool
) -> None:
    own, puller = (f"{name}@my-project.iam.gserviceaccount.com" for name in ("gateways", "puller"))
    options = {"service_account": own, "registry_identity": puller}
    asked = launched(harness, options=options, is_end=is_end, user_data=USES_IDENTITY)
    scope = "devstorage.read_write" if is_end else "devstorage.read_only"
    scopes = [f"https://www.googleapis.com/auth/{scope}"]
    assert asked["serviceAccounts"] == [{"email": own if is_end else puller, "scopes": scopes}]
    (script,) = [
        one["value"] for one in asked["metadata"]["items"] if one["key"] == "startup-script"
    ]
    # Gateways cannot use the second one.
    assert ("prohibit" in script) == (not is_end)


@pytest.mark.parametrize("is_end", [True, False])
def test_only_relays_are_spot_instances(harness: GcpHarness, is_end: bool) -> None:
    scheduling = launched(harness, options={"spot_relays": True}, is_end=is_end)["scheduling"]
    assert scheduling.get("provisioningModel") == (None if is_end else "SPOT")


@pytest.mark.parametrize(
    ("tier", "asked_for"), [("", "PREMIUM"), ("premium", "PREMIUM"), ("standard", "STANDARD")]
)
def test_the_network_tier_is_that_of_the_plan(
    harness: GcpHarness, tier: str, asked_for: str
) -> None:
    asked = launched(harness, network_tier=tier)
    (access,) = asked["networkInterfaces"][0]["accessConfigs"]
    assert access["networkTier"] == asked_for


def test_without_public_addresses_the_internal_one_counts(harness: GcpHarness) -> None:
    cloud = harness.gcp(public_address=False)
    instance = prepared(cloud).launch(a_request())
    assert instance.address.startswith("10.")
    asked = harness.gce.requests("instances.insert")[-1].body
    assert "accessConfigs" not in asked["networkInterfaces"][0]


def test_a_shared_network_and_its_subnetwork_are_used(harness: GcpHarness) -> None:
    harness.gce.conditions.networks = {"shared"}
    options = {
        "network": "projects/host-project/global/networks/shared",
        "subnetworks": {REGION: "gateways"},
    }
    (interface,) = launched(harness, options=options)["networkInterfaces"]
    assert interface["network"] == "projects/host-project/global/networks/shared"
    expected = "projects/host-project/regions/us-central1/subnetworks/gateways"
    assert interface["subnetwork"] == expected
    calls = [call for call in harness.gce.calls if call.method.startswith(("firewalls", "global"))]
    assert {call.project for call in calls} == {"host-project"}


def test_a_network_that_is_not_there_is_named(harness: GcpHarness) -> None:
    with pytest.raises(ConfigurationInvalid, match="networks/none"):
        launched(harness, options={"network": "none"})


def test_zones_of_the_options_are_tried_in_their_order(harness: GcpHarness) -> None:
    harness.gce.conditions.full = {"us-central1-c"}
    zones = {REGION: ("us-central1-c", "us-central1-f", "us-central1-a")}
    launched(harness, options={"zones": zones})
    tried = [call.path["zone"] for call in harness.gce.requests("instances.insert")]
    assert tried == ["us-central1-c", "us-central1-f"]


def test_zones_that_lack_the_type_are_not_tried(harness: GcpHarness) -> None:
    launched(harness, instance_type="c3-standard-22")
    tried = [call.path["zone"] for call in harness.gce.requests("instances.insert")]
    assert tried == ["us-central1-b"]


def test_zones_of_the_options_that_lack_the_type_are_named(harness: GcpHarness) -> None:
    """A typo; another type or region may be planned then."""
    said = r"zones of gcp names us-central1-z for the region, which offers it in us-central1-a, us"
    with pytest.raises(InstanceTypeNotOffered, match=said):
        launched(harness, options={"zones": {REGION: ("us-central1-z",)}})


def test_a_quota_in_the_operation_is_an_error_too(harness: GcpHarness) -> None:
    harness.set_quota(0)
    harness.gce.conditions.quota_in_operation = True
    with pytest.raises(QuotaExceeded, match="gcp:us-central1") as caught:
        launched(harness)
    assert (caught.value.quota, caught.value.series) == ("N2-CPUS-per-project-region", "n2-")


def test_a_stopped_instance_keeps_its_name_until_it_is_deleted(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    first = cloud.launch(a_request())
    harness.gce.power_off(first.cloud_id)
    (stopped,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert (stopped.state, stopped.address) == ("ending", "")
    assert "its disk remains" in stopped.why_ended
    second = cloud.launch(a_request(launch_number=1))
    assert second.cloud_id != first.cloud_id
    assert cloud.launch(a_request(launch_number=0)).cloud_id == second.cloud_id
    cloud.terminate([stopped, second])
    assert harness.gce.leftovers().keys() == {"firewalls"}


def test_an_instance_of_the_same_name_without_our_labels_is_refused(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    harness.gce.instance(cloud.launch(a_request()).cloud_id)["labels"] = {}
    with pytest.raises(ConfigurationInvalid, match="does not have the labels"):
        cloud.launch(a_request())


def test_a_launch_that_no_list_shows_is_an_error(harness: GcpHarness) -> None:
    harness.hide_new(1000)
    with pytest.raises(CloudUnavailable, match="does not show it"):
        harness.gcp().launch(a_request())


def test_a_repeated_request_has_the_same_id(harness: GcpHarness) -> None:
    harness.lose_reply("launch")
    launched(harness)
    ids = [call.query["requestId"] for call in harness.gce.requests("instances.insert")]
    assert len(ids) == 2
    assert len(set(ids)) == 1
    assert harness.launches() == 1


def test_an_instance_costs_three_calls_until_it_runs(harness: GcpHarness) -> None:
    cloud = prepared(harness.gcp())
    cloud.vcpus(REGION, X86_TYPE)
    before = len(harness.gce.calls)
    cloud.launch(a_request())
    methods = harness.gce.methods()[before:]
    assert methods == ["instances.insert", "zoneOperations.wait", "instances.get"]
