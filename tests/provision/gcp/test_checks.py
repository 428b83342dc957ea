"""The check names what is missing, and makes nothing."""

from __future__ import annotations

import pytest
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import REGION

from skyplane_orchestration.provision.gcp.checks import needed

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


def test_the_account_of_the_registry_is_checked_too(harness: GcpHarness) -> None:
    other = "puller@my-project.iam.gserviceaccount.com"
    findings = harness.gcp(service_account=EMAIL, registry_identity=other).check()
    texts = [one.text for one in findings if one.name == "gcp service account"]
    assert texts == [f"instances can be given {EMAIL}", f"instances can be given {other}"]
    harness.gce.conditions.denied.add("compute.instances.setServiceAccount")
    (bad,) = [one for one in harness.gcp(registry_identity=other).check() if not one.is_ok]
    assert "compute.instances.setServiceAccount" in bad.text


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


@pytest.mark.parametrize(
    "broken", ["projects.testIamPermissions", "serviceAccounts.testIamPermissions", "regions.list"]
)
@pytest.mark.parametrize(("status", "reason"), [(501, "odd"), (403, "forbidden")])
def test_a_check_that_fails_hides_no_other(
    harness: GcpHarness, broken: str, status: int, reason: str
) -> None:
    harness.gce.fail(broken, status, reason, times=1000)
    harness.gce.conditions.denied |= {"compute.instances.create", "iam.serviceAccounts.actAs"}
    zones = {"gcp:us-west9": ("us-west9-a",)}
    findings = harness.gcp(service_account=EMAIL, zones=zones).check()
    assert findings[0].name == "gcp credentials"
    told = {one.name: one.text for one in findings if not one.is_ok or one.is_warning}
    expected = {
        "projects.testIamPermissions": ("gcp permissions", "compute.instances.create in project"),
        "serviceAccounts.testIamPermissions": ("gcp service account", "actAs on"),
        "regions.list": ("gcp regions", "gcp:us-west9"),
    }
    for method, (name, text) in expected.items():
        assert (reason if method == broken else text) in told[name]


def test_one_project_that_does_not_answer_hides_no_other(harness: GcpHarness) -> None:
    """The first is that of a shared network."""
    harness.gce.fail("projects.testIamPermissions", 403, "forbidden")
    harness.gce.conditions.denied.add("compute.instances.create")
    network = "projects/host-project/global/networks/shared"
    bad = [one.text for one in harness.gcp(network=network).check() if not one.is_ok]
    assert any("project host-project" in text and "forbidden" in text for text in bad)
    assert any("compute.instances.create in project strict-project" in text for text in bad)


def test_zones_of_the_options_that_lack_the_usual_type_are_a_warning(harness: GcpHarness) -> None:
    zones = {REGION: ("us-central1-z",), "gcp:europe-west1": ("europe-west1-b",)}
    findings = harness.gcp(zones=zones).check()
    assert all(one.is_ok for one in findings)
    (warning,) = [one for one in findings if one.is_warning]
    assert warning.name == "gcp zones"
    assert "zones of gcp names us-central1-z for the region, which offers it in" in warning.text
    harness.gce.fail("machineTypes.aggregatedList", 501, "odd", times=100)
    (bad,) = [one for one in harness.gcp(zones=zones).check() if not one.is_ok]
    assert (bad.name, "odd" in bad.text) == ("gcp zones", True)
