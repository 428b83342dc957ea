"""What `doctor` finds on Azure."""

from __future__ import annotations

import pytest
from tests.provision.azure.harness import AzureHarness

from strict_clouds.arm_state import SIZES
from strict_clouds.arm_wire import SUBSCRIPTION

READ = {"actions": ["*/read"], "notActions": []}
COMPUTE = {"actions": ["microsoft.compute/*"], "notActions": ["Microsoft.Compute/disks/*"]}
REST = {
    "actions": [
        "Microsoft.Network/*",
        "Microsoft.Resources/tags/write",
        "Microsoft.Resources/subscriptions/resourceGroups/*",
    ],
    "notActions": [],
}
DISKS = {"actions": ["Microsoft.Compute/disks/*"], "notActions": []}
IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/gateways"
)
ASSIGN = "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"


def test_all_is_well(harness: AzureHarness) -> None:
    findings = harness.azure().check()
    assert [one.is_ok for one in findings] == [True, True]
    assert harness.leftovers() == {}


def test_all_missing_permissions_are_named(harness: AzureHarness) -> None:
    denied = {
        "Microsoft.Compute/virtualMachines/write",
        "Microsoft.Network/networkInterfaces/read",
        "Microsoft.Network/networkSecurityGroups/write",
    }
    harness.arm.conditions.denied |= denied
    (bad,) = [one for one in harness.azure().check() if not one.is_ok]
    assert bad.name == "azure permissions"
    named = {one.partition(" on ")[0] for one in bad.text.partition(": ")[2].split(", ")}
    assert named == denied


def test_roles_add_up(harness: AzureHarness) -> None:
    harness.arm.conditions.roles = {"": [READ, COMPUTE, REST, DISKS]}
    assert all(one.is_ok for one in harness.azure().check())
    harness.arm.conditions.roles = {"": [READ, COMPUTE, REST]}
    (bad,) = [one for one in harness.azure().check() if not one.is_ok]
    assert "Microsoft.Compute/disks/delete on /subscriptions/" in bad.text
    assert "Microsoft.Compute/disks/read" not in bad.text
    assert "virtualMachines" not in bad.text


def test_an_identity_may_have_a_role_of_its_own(harness: AzureHarness) -> None:
    roles = {"": [READ, COMPUTE, REST, DISKS]}
    harness.arm.conditions.roles = roles
    cloud = harness.azure(managed_identity=IDENTITY)
    (bad,) = [one for one in cloud.check() if not one.is_ok]
    assert bad.text == f"these are missing: {ASSIGN} on {IDENTITY}"
    on_identity = IDENTITY.lower().split("/", 3)[3]
    harness.arm.conditions.roles = {**roles, on_identity: [{"actions": [ASSIGN], "notActions": []}]}
    assert all(one.is_ok for one in cloud.check())


def test_without_the_right_to_read_roles_the_check_says_what_it_does_not_know(
    harness: AzureHarness,
) -> None:
    denied = harness.arm.conditions.denied
    denied.add("Microsoft.Authorization/permissions/read")
    findings = harness.azure().check()
    assert all(one.is_ok for one in findings)
    (unknown,) = [one for one in findings if one.is_warning]
    assert "Microsoft.Authorization/permissions/read" in unknown.text
    denied.add("Microsoft.Network/networkInterfaces/read")
    (bad,) = [one for one in harness.azure().check() if not one.is_ok]
    assert "Microsoft.Network/networkInterfaces/read" in bad.text


def test_an_unregistered_provider_is_named(harness: AzureHarness) -> None:
    harness.arm.conditions.unregistered.add("Microsoft.Network")
    (bad,) = [one for one in harness.azure().check() if not one.is_ok]
    assert "az provider register --namespace Microsoft.Network" in bad.text


def test_without_access_nothing_else_is_tried(harness: AzureHarness) -> None:
    harness.arm.conditions.denied.add("Microsoft.Resources/subscriptions/providers/read")
    (bad,) = harness.azure().check()
    assert not bad.is_ok
    assert len(harness.arm.calls) == 1


def test_a_region_that_the_subscription_has_not_is_named(harness: AzureHarness) -> None:
    cloud = harness.azure(regions=("azure:westeurope", harness.closed_region))
    (bad,) = [one for one in cloud.check() if not one.is_ok]
    assert harness.closed_region in bad.name


def test_a_type_that_the_subscription_may_not_use_is_a_warning(
    harness: AzureHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure closes sizes to many new subscriptions; plans then have other types or regions."""
    monkeypatch.delitem(SIZES, "Standard_D4s_v5")
    findings = harness.azure().check()
    assert all(one.is_ok for one in findings)
    (warning,) = [one for one in findings if one.is_warning]
    assert "Standard_D4s_v5" in warning.text
