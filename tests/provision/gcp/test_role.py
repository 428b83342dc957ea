"""The role of the documentation has every permission that is needed, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.provision.gcp.harness import GcpHarness
from tests.provision.gcp.samples import FLEET, REGION, a_request, prepared

from skyplane_orchestration.provision.fleet.machines import Ingress
from skyplane_orchestration.provision.gcp.checks import ACT_AS, needed
from skyplane_orchestration.provision.gcp.error_mapping import PERMISSIONS


@pytest.fixture
def role(repository: Path) -> set[str]:
    text = (repository / "docs/reference/permissions/gcp.yaml").read_text()
    found: list[str] = yaml.safe_load(text)["includedPermissions"]
    assert sorted(set(found)) == found
    return set(found)


def use_everything(harness: GcpHarness) -> None:
    """Every call that the code can make."""
    options: dict[str, Any] = {"service_account": "a@my-project.iam.gserviceaccount.com"}
    cloud = harness.gcp(**options)
    cloud.check()
    cloud.regions()
    cloud.quotas([REGION])
    cloud.quota_uses([REGION])
    prepared(cloud)
    launched = cloud.launch(a_request(is_end=True))
    cloud.pin_key(launched, "ab")
    # A worker that does not see the rule yet makes it again, and then changes it.
    harness.hide_new(1)
    wider = [Ingress(7601, 7602, f"203.0.113.{number}/32") for number in range(2)]
    cloud.set_ingress(FLEET, REGION, wider[:1])
    cloud.set_ingress(FLEET, REGION, wider)
    cloud.console_tail(launched, 100)
    harness.leave_a_disk(launched)
    cloud.terminate([launched])
    cloud.describe(FLEET.fleet_key, [REGION])
    cloud.list_resources(FLEET.deployment, [REGION])
    assert cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION])) == ()


def test_what_is_called_is_what_the_role_allows(harness: GcpHarness, role: set[str]) -> None:
    use_everything(harness)
    assert harness.leftovers() == {}
    assert harness.gce.used_permissions == role | {ACT_AS}
    assert set(harness.gce.methods()) == {
        *PERMISSIONS,
        "projects.testIamPermissions",
        "serviceAccounts.testIamPermissions",
    }


def test_the_code_says_what_it_needs(role: set[str]) -> None:
    assert needed(with_address=True, with_service_account=True) == role
    assert needed(with_address=False, with_service_account=False) == role - {
        "compute.instances.setServiceAccount",
        "compute.subnetworks.useExternalIp",
    }


def test_each_permission_is_justified_in_the_page(repository: Path, role: set[str]) -> None:
    page = (repository / "docs/reference/permissions-gcp.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `compute.")]
    assert {name for row in rows for name in row[1].split("`") if "." in name} == role
