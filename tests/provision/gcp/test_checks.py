"""The check names what is missing, and makes nothing."""

from __future__ import annotations

import pytest
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import REGION

from skyplane_orchestration.provision.gcp.verbs import needed

EMAIL = "gateways@my-project.iam.gserviceaccount.com"


def test_with_all_permissions_there_is_nothing_to_do(harness: GcpHarness) -> None:
    findings = harness.gcp(regions=(REGION,), service_account=EMAIL).check()
    assert [(one.name, one.is_ok) for one in findings] == [
        ("gcp credentials", True),
        ("gcp permissions", True),
        ("gcp service account", True),
        ("gcp regions", True),
    ]
    assert harness.leftovers() == {}


@pytest.mark.parametrize("permission", sorted(needed(with_address=True, with_service_account=True)))
def test_a_missing_permission_is_named(harness: GcpHarness, permission: str) -> None:
    harness.gce.conditions.denied.add(permission)
    findings = harness.gcp(service_account=EMAIL).check()
    missing = [one for one in findings if not one.is_ok and one.name == "gcp permissions"]
    assert [f"{permission} in project strict-project" in one.text for one in missing] == [True]
    assert harness.leftovers() == {}


def test_a_service_account_that_may_not_be_given_is_named(harness: GcpHarness) -> None:
    harness.gce.conditions.denied.add("iam.serviceAccounts.actAs")
    (bad,) = [one for one in harness.gcp(service_account=EMAIL).check() if not one.is_ok]
    assert bad.name == "gcp service account"
    assert bad.text == f"iam.serviceAccounts.actAs on {EMAIL} is missing"


def test_without_the_iam_api_the_check_says_what_it_does_not_know(harness: GcpHarness) -> None:
    harness.gce.fail("serviceAccounts.testIamPermissions", 403, "accessNotConfigured")
    findings = harness.gcp(service_account=EMAIL).check()
    assert all(one.is_ok for one in findings)
    (unknown,) = [one for one in findings if one.is_warning]
    assert unknown.text.startswith(f"not known: iam.serviceAccounts.actAs on {EMAIL}; ")


def test_the_project_of_a_shared_network_has_to_grant_its_own(harness: GcpHarness) -> None:
    harness.gce.conditions.denied |= {"compute.firewalls.create", "compute.instances.create"}
    network = "projects/host-project/global/networks/shared"
    (finding,) = [one for one in harness.gcp(network=network).check() if not one.is_ok]
    assert "compute.firewalls.create in project host-project" in finding.text
    assert "compute.instances.create in project strict-project" in finding.text


def test_without_credentials_nothing_else_is_tried(harness: GcpHarness) -> None:
    harness.gce.fail("projects.testIamPermissions", 401, "authError", times=10)
    (finding,) = harness.gcp().check()
    assert (finding.name, finding.is_ok) == ("gcp credentials", False)
    assert set(harness.gce.methods()) == {"projects.testIamPermissions"}


def test_a_region_that_the_project_does_not_have_is_named(harness: GcpHarness) -> None:
    cloud = harness.gcp(zones={"gcp:us-west9": ("us-west9-a",)})
    (finding,) = [one for one in cloud.check() if not one.is_ok]
    assert (finding.name, "gcp:us-west9" in finding.text) == ("gcp regions", True)
