"""The resource chooses and configures each cloud, and its check says what is missing."""

from __future__ import annotations

from typing import Any

import dagster as dg
from tests.clouds.accounts import ACCOUNTS, Account

from skyplane_orchestration.dagster import SkyplaneResource, build_skyplane_sweep_sensor


def resource(
    settings: dict[str, Any], deployment: str = "prod", provisioner: str = "cloud"
) -> SkyplaneResource:
    """As a run sees it."""
    made = SkyplaneResource(
        provisioner=provisioner, deployment=deployment, clouds=settings
    ).process_config_and_initialize()
    assert isinstance(made, SkyplaneResource)
    return made


def lacking(made: SkyplaneResource) -> dict[str, str]:
    return {found.name: found.text for found in made.check() if not found.is_ok}


def test_the_resource_configures_the_cloud(account: Account) -> None:
    made = resource(account.settings())
    assert lacking(made) == {}
    assert f"{account.cloud} credentials" in {found.name for found in made.check()}
    command = "skyplane-orch sweep --provisioner cloud --clouds CLOUDS.yaml --deployment prod"
    assert made.command("sweep") == command


def test_the_name_of_a_cloud_leaves_out_the_settings_of_others(account: Account) -> None:
    settings = {name: {"unknown": 1} for name in ACCOUNTS} | account.settings()
    made = resource(settings, provisioner=account.cloud)
    assert lacking(made) == {}
    assert f"--provisioner {account.cloud} --clouds" in made.command("sweep")


def test_credentials_and_a_deployment_that_are_missing_are_named(account: Account) -> None:
    made = resource(account.settings_with("env:GATEWAYS"), deployment="local")
    found = lacking(made)
    assert list(found) == ["deployment", f"{account.cloud} credentials"]
    assert "GATEWAYS_" in found[f"{account.cloud} credentials"]


def test_the_sweep_sensor_ends_what_a_lost_worker_left(account: Account) -> None:
    account.leave_a_fleet("prod")
    before = account.fake.leftovers()
    with dg.DagsterInstance.ephemeral() as instance:
        for deployment in ("staging", "prod"):
            assert account.fake.leftovers() == before
            context = dg.build_sensor_context(
                instance=instance,
                resources={"skyplane": resource(account.settings(), deployment)},
            )
            tick = build_skyplane_sweep_sensor().evaluate_tick(context)
    assert tick.skip_message == "fleets removed: 1, kept: 0"
    assert not any(account.fake.leftovers().values())
