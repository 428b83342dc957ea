"""The role of the documentation has every action that is called, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from tests.provision.azure.harness import AzureHarness
from tests.provision.azure.samples import FLEET, REGION, WORKERS, a_request
from tests.provision.azure.test_launch import IDENTITY

from skyplane_orchestration.provision.azure import AzureOptions
from skyplane_orchestration.provision.azure.checks import needed
from skyplane_orchestration.provision.azure.error_mapping import action_of
from skyplane_orchestration.provision.fleet.machines import Ingress
from strict_clouds.arm_state import NETWORKS
from strict_clouds.arm_wire import ROUTES, SUBSCRIPTION

ROOT: Final = f"/subscriptions/{SUBSCRIPTION}"
#: Of `doctor` alone; fleets do without.
ONLY_DOCTOR: Final = frozenset(
    {"Microsoft.Authorization/permissions/read", "Microsoft.Network/locations/usages/read"}
)


@pytest.fixture
def role(repository: Path) -> set[str]:
    text = (repository / "docs/reference/permissions/azure.json").read_text()
    found: list[str] = json.loads(text)["Actions"]
    assert sorted(set(found), key=str.lower) == found
    return set(found)


def use_everything(harness: AzureHarness) -> None:
    """Every call that the code can make."""
    cloud = harness.azure(managed_identity=IDENTITY)
    other = harness.other_region
    cloud.check()
    cloud.regions()
    cloud.quotas([REGION])
    cloud.quota_uses([REGION])
    cloud.create_firewalls(FLEET, [REGION, other])
    cloud.admit(FLEET, REGION, [WORKERS])
    launched = cloud.launch(a_request(is_end=True))
    kept = cloud.launch(a_request(region=other, instance=f"{other}/0"))
    cloud.pin_key(launched, "ab")
    for peers in ([Ingress(7602, 7602, "203.0.113.7/32")], []):
        cloud.set_ingress(FLEET, REGION, peers)
    cloud.console_tail(launched, 100)
    harness.leave_a_disk(launched)
    harness.leave_an_interface(launched)
    cloud.terminate([launched])
    for _ in range(2):
        cloud.describe(FLEET.fleet_key, [REGION])
    cloud.list_resources(FLEET.deployment, [REGION])
    # The other region has a machine, so things are deleted one by one.
    assert cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [REGION])) == ()
    assert [one["location"] for one in harness.arm.state.of_kind(NETWORKS)] == ["eastus"]
    cloud.terminate([kept])
    cloud.describe(FLEET.fleet_key, [other])
    while cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, [other])):
        pass


def test_what_is_called_is_what_the_role_allows(harness: AzureHarness, role: set[str]) -> None:
    use_everything(harness)
    assert harness.leftovers() == {}
    assert harness.arm.used_actions == role


def test_the_code_says_what_it_needs(role: set[str]) -> None:
    def of(**options: Any) -> dict[str, frozenset[str]]:
        return needed(AzureOptions(SUBSCRIPTION, **options))

    on_all = of(managed_identity=IDENTITY)
    assert frozenset[str]().union(*on_all.values()) | ONLY_DOCTOR == role
    assert on_all[IDENTITY] == {"Microsoft.ManagedIdentity/userAssignedIdentities/assign/action"}
    puller = IDENTITY.replace("gateways", "puller")
    assert of(managed_identity=IDENTITY, registry_identity=puller)[puller] == on_all[IDENTITY]
    subnet = f"{ROOT}/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/n/subnets/s"
    private = of(public_address=False, regions=(REGION,), subnets={REGION: subnet})
    join = "Microsoft.Network/virtualNetworks/subnets/join/action"
    assert private[subnet] == {join}
    assert role - ONLY_DOCTOR - private[ROOT] == {
        *on_all[IDENTITY],
        join,
        "Microsoft.Network/publicIPAddresses/join/action",
        "Microsoft.Network/publicIPAddresses/write",
    }


def test_each_action_is_justified_in_the_page(repository: Path, role: set[str]) -> None:
    page = (repository / "docs/reference/permissions-azure.md").read_text().partition("\n| with")[0]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `Microsoft.")]
    assert {name for row in rows for name in row[1].split("`") if "." in name} == role


@pytest.mark.parametrize(("method", "path"), sorted(ROUTES))
def test_errors_name_the_action_of_the_request(method: str, path: str) -> None:
    named = path.format(
        group="g",
        name="n",
        provider="Microsoft.Compute",
        location="l",
        operation="o",
        scope="providers/Microsoft.Compute/images/i",
        assignment="a",
        rule="r",
    )
    wanted = ROUTES[method, path][1].format(provider="Microsoft.Compute")
    assert action_of(method, f"https://host/subscriptions/s/{named}?api-version=1") == wanted
