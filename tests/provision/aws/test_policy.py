"""The policy of the documentation has every action that is called, and no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.provision.aws.harness import AwsHarness
from tests.provision.aws.samples import FLEET, REGION, WORKERS, X86_TYPE, a_request

from skyplane_orchestration.provision.aws.checks import UNTRIED
from skyplane_orchestration.provision.instances.cloud import Ingress


@pytest.fixture
def statements(repository: Path) -> list[dict[str, Any]]:
    text = (repository / "docs/reference/permissions/aws.json").read_text()
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


@pytest.fixture
def allowed(statements: list[dict[str, Any]]) -> set[str]:
    actions = [one["Action"] for one in statements]
    return {name for one in actions for name in ([one] if isinstance(one, str) else one)}


def use_everything(harness: AwsHarness) -> None:
    """Every call that the code can make."""
    options: dict[str, Any] = {"instance_profile": "gateways", "spot_relays": True}
    cloud = harness.aws(**options)
    cloud.check()
    cloud.regions()
    cloud.quotas([REGION])
    cloud.quota_uses([REGION])
    cloud.prepare(FLEET, [REGION], [WORKERS])
    launched = [cloud.launch(a_request(is_end=True)), cloud.launch(a_request(instance="aws:r/1"))]
    own_image = harness.aws(**options, images={REGION: harness.make_image("x86_64")})
    launched.append(own_image.launch(a_request(instance="aws:r/2", instance_type=X86_TYPE)))
    cloud.pin_key(launched[0], "ab")
    cloud.allow(FLEET, REGION, [Ingress(7602, 7602, "203.0.113.7/32")])
    cloud.console_tail(launched[0], 100)
    harness.leave_a_disk(launched[0])
    harness.leave_an_interface(launched[0])
    cloud.terminate(launched)
    cloud.describe(FLEET.fleet_key, [REGION])
    cloud.list_resources(FLEET.deployment, [REGION])
    assert cloud.delete_rest(cloud.rest_of(FLEET.fleet_key, [REGION])) == ()


def test_what_is_called_is_what_the_policy_allows(harness: AwsHarness, allowed: set[str]) -> None:
    with harness.instance_profile("gateways"):
        use_everything(harness)
    assert harness.ec2.used_actions == allowed
    assert harness.leftovers() == {}


def test_each_action_is_justified_in_the_page(repository: Path, allowed: set[str]) -> None:
    page = (repository / "docs/reference/permissions-aws.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in row[1].split("`") if ":" in name}
    assert named == allowed


def test_only_things_of_the_deployment_can_be_changed(statements: list[dict[str, Any]]) -> None:
    for statement in statements:
        actions = statement["Action"]
        names = [actions] if isinstance(actions, str) else actions
        changing = ("Authorize", "Revoke", "Terminate", "Delete", "GetConsole")
        if any(name.partition(":")[2].startswith(changing) for name in names):
            assert statement["Condition"] == {
                "StringEquals": {"aws:ResourceTag/skyplane:deployment": "DEPLOYMENT"}
            }


def test_the_check_says_which_actions_it_does_not_try(allowed: set[str]) -> None:
    assert set(UNTRIED) < allowed
