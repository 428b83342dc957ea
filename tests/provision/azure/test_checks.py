"""What `doctor` finds on Azure."""

from __future__ import annotations

from tests.provision.azure.harness import AzureHarness


def test_all_is_well(harness: AzureHarness) -> None:
    findings = harness.azure().check()
    assert [one.is_ok for one in findings] == [True, True]
    assert harness.leftovers() == {}


def test_a_missing_permission_is_named(harness: AzureHarness) -> None:
    action = "Microsoft.Network/networkInterfaces/read"
    harness.arm.conditions.denied.add(action)
    (bad,) = [one for one in harness.azure().check() if not one.is_ok]
    assert action in bad.text


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
