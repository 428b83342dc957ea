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


@pytest.mark.parametrize(
    ("status", "code"), [(401, "ExpiredAuthenticationToken"), (404, "SubscriptionNotFound")]
)
def test_without_access_nothing_else_is_tried(
    harness: AzureHarness, status: int, code: str
) -> None:
    harness.arm.fail("providers.get", status, code)
    (bad,) = harness.azure().check()
    assert (bad.name, bad.is_ok) == ("azure credentials", False)
    assert len(harness.arm.calls) == 1


#: What a check reads -> a word of the finding that its failure is.
READS = {
    "providers.get": "Microsoft.Compute",
    "permissions.list": "which actions",
    "groups.list": "resourceGroups/read",
    "machines.listAll": "virtualMachines/read",
    "firewalls.list": "networkSecurityGroups/read",
    "interfaces.list": "networkInterfaces/read",
    "addresses.list": "publicIPAddresses/read",
    "disks.list": "disks/read",
    "skus.list": "sizes",
    "usages.list": "quotas",
}


@pytest.mark.long
@pytest.mark.parametrize("broken", READS)
def test_a_check_that_fails_hides_no_other(harness: AzureHarness, broken: str) -> None:
    """All other reads fail too, with another code."""
    code = "AuthorizationFailed"
    for rule in READS:
        harness.arm.fail(rule, *((403, code) if rule == broken else (405, "Odd")), times=1000)
    findings = harness.azure(regions=("azure:westeurope",)).check()
    assert findings[0].name == "azure credentials"
    told = [one.text for one in findings if not one.is_ok or one.is_warning]
    for rule, word in READS.items():
        wanted = (code if rule == broken else "Odd", word)
        assert any(all(part in text for part in wanted) for text in told), (rule, told)


def test_missing_permissions_hide_no_other_check(harness: AzureHarness) -> None:
    harness.arm.conditions.denied.add("Microsoft.Compute/virtualMachines/write")
    harness.arm.conditions.unregistered.add("Microsoft.Network")
    harness.arm.fail("usages.list", 400, "Odd")
    cloud = harness.azure(regions=("azure:westeurope", harness.closed_region))
    told = " ".join(one.text for one in cloud.check() if not one.is_ok)
    for part in ("virtualMachines/write", "--namespace Microsoft.Network", "Odd", "does not have"):
        assert part in told


def test_roles_that_cannot_be_read_at_one_scope_hide_no_other(harness: AzureHarness) -> None:
    """The first is the subscription."""
    harness.arm.conditions.denied.add(ASSIGN)
    harness.arm.fail("permissions.list", 400, "Odd")
    told = [one.text for one in harness.azure(managed_identity=IDENTITY).check() if not one.is_ok]
    assert any("Odd" in text for text in told)
    assert any(ASSIGN in text for text in told)


def test_a_region_that_the_subscription_has_not_is_named(harness: AzureHarness) -> None:
    cloud = harness.azure(regions=("azure:westeurope", harness.closed_region))
    (bad,) = [one for one in cloud.check() if not one.is_ok]
    assert (bad.name, harness.closed_region in bad.text) == ("azure regions", True)


def test_a_wrong_region_that_comes_first_is_one_finding(harness: AzureHarness) -> None:
    regions = ("azure:westeurop", "azure:westeurope")
    (bad,) = [one for one in harness.azure(regions=regions).check() if not one.is_ok]
    assert bad.name == "azure regions"
    assert "does not have azure:westeurop; correct the settings of azure" in bad.text


def test_a_type_that_the_subscription_may_not_use_is_a_warning(
    harness: AzureHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure closes sizes to many new subscriptions; plans then have other types or regions."""
    monkeypatch.delitem(SIZES, "Standard_D4s_v5")
    findings = harness.azure().check()
    assert all(one.is_ok for one in findings)
    (warning,) = [one for one in findings if one.is_warning]
    assert "Standard_D4s_v5" in warning.text
