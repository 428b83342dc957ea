"""What Azure is asked for at a launch, and what its answers lead to."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import (
    ARM_TYPE,
    FLEET,
    GROUP,
    REGION,
    a_request,
    prepared,
)
from tests.provision.fleet.launches import USES_IDENTITY

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
    QuotaExceeded,
)
from skyplane_orchestration.provision.azure import AzureCloud
from strict_clouds.arm_machines import SELF_DELETE
from strict_clouds.arm_state import ADDRESSES, DISKS, INTERFACES, properties

IDENTITY = (
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/gateways"
)


def body_of(harness: AzureHarness, index: int = -1) -> Mapping[str, Any]:
    return harness.arm.requests("machines.put")[index].body


def launched_body(harness: AzureHarness, cloud: AzureCloud, **changes: Any) -> Mapping[str, Any]:
    prepared(cloud).launch(a_request(**changes))
    return body_of(harness)


def test_everything_ends_with_the_machine(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    launched = cloud.launch(a_request())
    state = harness.arm.state
    assert [len(state.of_kind(kind)) for kind in (DISKS, INTERFACES, ADDRESSES)] == [1, 1, 1]
    harness.end_by_hand(launched)
    assert [len(state.of_kind(kind)) for kind in (DISKS, INTERFACES, ADDRESSES)] == [0, 0, 0]


def test_all_resources_have_the_tags_of_the_fleet(harness: AzureHarness) -> None:
    prepared(harness.azure(user_tags={"team": "data"})).launch(a_request())
    for one in [*harness.arm.state.groups.values(), *harness.arm.state.resources.values()]:
        assert one["tags"]["skyplane:fleet"] == FLEET.fleet_key
        assert one["tags"]["team"] == "data"


def test_nobody_can_log_in(harness: AzureHarness) -> None:
    cloud = harness.azure()
    profiles = [launched_body(harness, cloud)["properties"]["osProfile"]]
    profiles.append(launched_body(harness, cloud, instance="azure:r/1")["properties"]["osProfile"])
    linux = [one["linuxConfiguration"] for one in profiles]
    assert [one["disablePasswordAuthentication"] for one in linux] == [True, True]
    # The private halves are thrown away, and each machine has a key of its own.
    assert linux[0]["ssh"] != linux[1]["ssh"]
    assert [one["allowExtensionOperations"] for one in profiles] == [False, False]


@pytest.mark.parametrize(
    ("tier", "tags"),
    [
        ("standard", [{"ipTagType": "RoutingPreference", "tag": "Internet"}]),
        ("premium", []),
        ("", []),
    ],
)
def test_the_network_tier_is_the_routing_preference_of_the_address(
    harness: AzureHarness, tier: str, tags: object
) -> None:
    launched_body(harness, harness.azure(), network_tier=tier)
    (asked,) = harness.arm.requests("addresses.put")
    assert asked.body["properties"]["ipTags"] == tags


@pytest.mark.parametrize(("is_end", "has_identity"), [(True, True), (False, False)])
def test_only_ends_have_the_identity(
    harness: AzureHarness, is_end: bool, has_identity: bool
) -> None:
    body = launched_body(harness, harness.azure(managed_identity=IDENTITY), is_end=is_end)
    assert ("identity" in body) == has_identity


@pytest.mark.parametrize("is_end", [True, False])
def test_machines_without_an_own_identity_get_the_one_of_the_registry(
    harness: AzureHarness, is_end: bool
) -> None:
    puller = IDENTITY.replace("gateways", "puller")
    cloud = harness.azure(managed_identity=IDENTITY, registry_identity=puller)
    body = launched_body(harness, cloud, is_end=is_end, user_data=USES_IDENTITY)
    expected: Mapping[str, Any] = {IDENTITY if is_end else puller: {}}
    assert body["identity"] == {"type": "UserAssigned", "userAssignedIdentities": expected}
    (script,) = harness.arm.machines.user_data.values()
    # Gateways cannot use the second one.
    assert ("prohibit" in script) == (not is_end)


@pytest.mark.parametrize("is_end", [True, False])
def test_a_machine_may_delete_itself_and_nothing_else(harness: AzureHarness, is_end: bool) -> None:
    cloud = harness.azure(managed_identity=IDENTITY, self_delete_role=SELF_DELETE)
    boot_script = "#!/bin/sh\nlast_act() { :; }\n"
    body = launched_body(harness, cloud, is_end=is_end, user_data=boot_script)
    assert body["identity"]["type"] == ("UserAssigned" if is_end else "SystemAssigned")
    (machine,) = harness.arm.virtual_machines()
    (asked,) = harness.arm.requests("machines.assign")
    assert asked.path["name"] == machine["name"]
    assert asked.body["properties"]["roleDefinitionId"] == SELF_DELETE
    script = harness.arm.machines.user_data[machine["id"].lower()]
    assert f"{machine['id']}?api-version=" in script
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    # A worker that finds the instance makes sure of its right, in case the first one has died.
    cloud.launch(a_request(is_end=is_end))
    assert [one.path["assignment"] for one in harness.arm.requests("machines.assign")] == [
        asked.path["assignment"]
    ] * 2


def test_without_the_option_a_machine_gets_no_right(harness: AzureHarness) -> None:
    assert "identity" not in launched_body(harness, harness.azure())
    assert harness.arm.requests("machines.assign") == []
    (script,) = harness.arm.machines.user_data.values()
    assert "169.254.169.254" not in script


def test_a_worker_that_may_assign_no_roles_is_told_so(harness: AzureHarness) -> None:
    harness.arm.conditions.denied.add("Microsoft.Authorization/roleAssignments/write")
    cloud = prepared(harness.azure(self_delete_role=SELF_DELETE))
    with pytest.raises(CloudAccessDenied, match="Authorization/roleAssignments/write"):
        cloud.launch(a_request())


@pytest.mark.parametrize("is_end", [True, False])
def test_only_relays_are_spot(harness: AzureHarness, is_end: bool) -> None:
    facts = launched_body(harness, harness.azure(spot_relays=True), is_end=is_end)["properties"]
    assert (facts.get("priority"), facts.get("evictionPolicy")) == (
        (None, None) if is_end else ("Spot", "Delete")
    )


def test_the_image_is_that_of_the_architecture(harness: AzureHarness) -> None:
    facts = launched_body(harness, harness.azure(), instance_type=ARM_TYPE)["properties"]
    assert facts["storageProfile"]["imageReference"]["sku"] == "13-arm64"


def test_disks_are_encrypted_with_the_set(harness: AzureHarness) -> None:
    wanted = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/e"
    facts = launched_body(harness, harness.azure(disk_encryption_set=wanted))["properties"]
    disk = facts["storageProfile"]["osDisk"]["managedDisk"]
    assert disk["diskEncryptionSet"] == {"id": wanted}


def test_a_region_without_zones_is_used(harness: AzureHarness) -> None:
    region = "azure:westus"
    cloud = harness.azure()
    cloud.create_firewalls(FLEET, [region])
    assert cloud.launch(a_request(region=region, instance=f"{region}/0")).is_alive
    assert "zones" not in body_of(harness)


def test_zones_of_the_options_come_in_their_order(harness: AzureHarness) -> None:
    harness.arm.conditions.full.add("westeurope-3")
    prepared(harness.azure(zones={REGION: ("3", "2")})).launch(a_request())
    bodies = [call.body["zones"] for call in harness.arm.requests("machines.put")]
    assert bodies == [["3"], ["2"]]


def test_zones_of_the_options_that_lack_the_size_are_named(harness: AzureHarness) -> None:
    """Another size or region may be planned then."""
    cloud = prepared(harness.azure(zones={REGION: ("7",)}))
    said = "zones of azure names 7 for the region, which offers it in 1, 2, 3"
    with pytest.raises(InstanceTypeNotOffered, match=said):
        cloud.launch(a_request())


def test_a_machine_that_could_not_be_placed_is_deleted(harness: AzureHarness) -> None:
    harness.fill(REGION, all_zones=True)
    cloud = prepared(harness.azure())
    with pytest.raises(CapacityUnavailable, match="ZonalAllocationFailed"):
        cloud.launch(a_request())
    while cloud.describe(FLEET.fleet_key, [REGION]):
        pass
    assert harness.arm.virtual_machines() == []
    assert harness.arm.state.of_kind(ADDRESSES) == []


def test_the_machine_of_a_full_zone_does_not_delay_that_of_another(harness: AzureHarness) -> None:
    """Its deletion takes minutes and may fail, and the launch has what it needs."""
    harness.fill(REGION, all_zones=False)
    assert prepared(harness.azure()).launch(a_request()).is_alive
    assert len(harness.arm.requests("machines.delete")) == 1


def test_a_size_that_is_closed_at_once_is_no_capacity(harness: AzureHarness) -> None:
    harness.arm.conditions.closed_sizes.add(("westeurope", "Standard_D4s_v5"))
    cloud = prepared(harness.azure())
    with pytest.raises(CapacityUnavailable, match="SkuNotAvailable"):
        cloud.launch(a_request())
    rest = cloud.leftovers(FLEET.fleet_key, [REGION])
    assert {one.kind for one in rest} == {
        "network-security-group",
        "network-interface",
        "public-ip-address",
    }


def test_the_quota_of_the_family_is_named(harness: AzureHarness) -> None:
    harness.arm.conditions.quotas["westeurope", "standardDSv5Family"] = 2
    named = r"standardDSv5Family.*azure:westeurope.*0 of 2"
    with pytest.raises(QuotaExceeded, match=named) as caught:
        prepared(harness.azure()).launch(a_request())
    assert caught.value.series == "Standard_D4s_v5"


def test_the_quota_of_the_region_limits_all_types(harness: AzureHarness) -> None:
    harness.arm.conditions.quotas["westeurope", "cores"] = 2
    with pytest.raises(QuotaExceeded, match=r"cores.*azure:westeurope.*0 of 2") as caught:
        prepared(harness.azure()).launch(a_request())
    assert caught.value.series == ""


def test_a_refusal_with_the_code_of_quotas_is_none(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    harness.arm.fail("machines.put", 409, "OperationNotAllowed")
    with pytest.raises(CloudUnavailable, match="strict fake"):
        cloud.launch(a_request())


def test_azure_may_ignore_the_condition(harness: AzureHarness) -> None:
    """Then it refuses the other boot script."""
    harness.arm.conditions.ignores_conditions = True
    harness.hide_new(1000)
    first = prepared(harness.azure()).launch(a_request())
    found = harness.azure().launch(a_request(launch_id="f" * 32, user_data="#!/bin/sh\n"))
    assert (found.cloud_id, found.launch_id) == (first.cloud_id, first.launch_id)


def test_a_number_that_is_used_up_is_passed_over(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    harness.end_slowly(1000)
    first = cloud.launch(a_request())
    cloud.terminate([first])
    second = cloud.launch(a_request())
    assert second.cloud_id.partition("/")[0] != first.cloud_id.partition("/")[0]


def test_a_group_that_is_gone_says_so(harness: AzureHarness) -> None:
    with pytest.raises(CloudUnavailable, match="resource group is gone"):
        harness.azure().launch(a_request())


def test_private_addresses_need_a_subnet(harness: AzureHarness) -> None:
    cloud = harness.azure(public_address=False)
    with pytest.raises(ConfigurationInvalid, match="subnets of azure has none"):
        cloud.create_firewalls(FLEET, [REGION])


def test_instances_in_an_own_subnet_have_private_addresses(harness: AzureHarness) -> None:
    state = harness.arm.state
    state.groups["g"] = {"id": "g", "name": "g", "location": "westeurope", "properties": {}}
    kind = "Microsoft.Network/virtualNetworks"
    network = {"location": "westeurope", "properties": {"subnets": [{"name": "s"}]}}
    subnet = f"{state.put('g', kind, 'n', network)['id']}/subnets/s"
    cloud = prepared(harness.azure(public_address=False, subnets={REGION: subnet}))
    cloud.launch(a_request())
    (found,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert found.address.startswith("10.")
    assert state.of_kind(ADDRESSES) == []
    assert [one["name"] for one in state.of_kind(kind)] == ["n"]


@pytest.mark.parametrize(
    ("power", "state"),
    [
        ("starting", "starting"),
        ("running", "running"),
        # Both are billed on, at least for the disk.
        ("stopped", "ending"),
        ("deallocated", "ending"),
    ],
)
def test_power_states(harness: AzureHarness, power: str, state: str) -> None:
    cloud = prepared(harness.azure())
    launched = cloud.launch(a_request())
    harness.arm.machines.set_power(harness.resource_of(launched), power)
    (found,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert found.state == state
    assert found.why_ended == ("" if found.is_alive else power)


def test_power_states_are_read_once_for_all_instances(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    for index in range(3):
        cloud.launch(a_request(instance=f"{REGION}/{index}"))
    before = len(harness.arm.calls)
    assert len(cloud.describe(FLEET.fleet_key, [REGION])) == 3
    # Pages of two: machines, addresses, power states.
    assert len(harness.arm.calls) - before == 6


def test_a_machine_that_runs_stays_alive_when_a_change_fails(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    launched = cloud.launch(a_request())
    properties(harness.resource_of(launched))["provisioningState"] = "Failed"
    (found,) = cloud.describe(FLEET.fleet_key, [REGION])
    assert found.is_alive


def test_the_group_has_the_name_of_the_fleet(harness: AzureHarness) -> None:
    prepared(harness.azure())
    assert list(harness.arm.state.groups) == [GROUP]


def test_a_quote_in_a_deployment_stays_in_the_filter(harness: AzureHarness) -> None:
    cloud = harness.azure()
    cloud.create_firewalls(replace(FLEET, deployment="it's"), [REGION])
    _, rest = cloud.list_resources("it's", [REGION])
    assert [one.tags.deployment for one in rest] == ["it's"]


def test_a_group_of_somebody_else_is_refused(harness: AzureHarness) -> None:
    prepared(harness.azure())
    harness.arm.state.groups[GROUP]["tags"]["skyplane:deployment"] = "other"
    with pytest.raises(ConfigurationInvalid, match=GROUP):
        prepared(harness.azure())


def test_a_group_that_is_being_deleted_is_waited_for(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION]))
    prepared(cloud)
    assert cloud.launch(a_request()).is_alive


def test_an_empty_group_is_found_and_deleted(harness: AzureHarness) -> None:
    cloud = prepared(harness.azure())
    harness.arm.state.resources.clear()
    rest = cloud.leftovers(FLEET.fleet_key, [REGION])
    assert [one.kind for one in rest] == ["resource-group"]
    while cloud.delete_leftovers(rest):
        pass
    assert harness.leftovers() == {}
