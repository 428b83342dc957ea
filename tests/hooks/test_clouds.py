"""The connection chooses and configures each cloud, and its test says what is missing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.clouds.accounts import ACCOUNTS, Account
from tests.hooks.conftest import connection

from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.operators import SkyplaneSweepOperator


def of_clouds(settings: dict[str, Any], **more: Any) -> SimpleNamespace:
    extra = {"provisioner": "cloud", "deployment": "prod", "clouds": settings, **more}
    return connection(extra_dejson=extra)


@pytest.mark.parametrize("is_named", [False, True])
def test_the_connection_configures_the_cloud(
    account: Account, connections: dict[str, SimpleNamespace], is_named: bool
) -> None:
    """By the name of the cloud, too: then settings of other clouds do not count."""
    settings = account.settings()
    if is_named:
        connections["skyplane_default"] = of_clouds(
            {name: {"unknown": 1} for name in ACCOUNTS} | settings, provisioner=account.cloud
        )
    else:
        connections["skyplane_default"] = of_clouds(settings)
    works, message = SkyplaneHook().test_connection()
    assert works, message
    assert message.startswith("deployment 'prod', ")
    assert f"{account.cloud} credentials: " in message
    assert "without a password in the connection" in message
    assert not any(account.fake.leftovers().values())


def test_a_connection_that_is_missing_is_named(
    account: Account, connections: dict[str, SimpleNamespace]
) -> None:
    connections["skyplane_default"] = of_clouds(account.settings_with("airflow:gateways"))
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert message.startswith(f"{account.cloud} credentials: ")
    assert "there is no connection 'gateways'" in message


def test_a_permission_and_a_deployment_that_are_missing_are_named(
    account: Account, connections: dict[str, SimpleNamespace]
) -> None:
    account.fake.conditions.denied.add(account.action)
    connections["skyplane_default"] = of_clouds(account.settings(), deployment="")
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "deployment: deployment is 'local'" in message
    assert f"{account.cloud} permissions: " in message
    assert account.action in message
    assert not any(account.fake.leftovers().values())


def test_keys_of_the_connection_of_aws_launch_instances_and_are_not_logged(
    connections: dict[str, SimpleNamespace], caplog: pytest.LogCaptureFixture
) -> None:
    with ACCOUNTS["aws"]() as account:
        settings = account.settings(credential_ref="airflow:aws_gateways")
        connections["skyplane_default"] = of_clouds(settings)
        connections["aws_gateways"] = connection(conn_type="aws", login="AK", password="hush-hush")
        works, message = SkyplaneHook().test_connection()
    assert works, message
    assert "hush-hush" not in caplog.text + message


def test_the_sweep_operator_ends_what_a_lost_worker_left(
    account: Account, connections: dict[str, SimpleNamespace]
) -> None:
    connections["skyplane_default"] = of_clouds(account.settings())
    key = account.leave_a_fleet("prod")
    context: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="sweep", map_index=-1)}
    only_told = SkyplaneSweepOperator(task_id="tell", report_only=True).execute(context)
    assert [one["key"] for one in only_told["orphans"]] == [key]
    assert any(account.fake.leftovers().values())
    report = SkyplaneSweepOperator(task_id="sweep").execute(context)
    assert [one["key"] for one in report["orphans"]] == [key]
    assert list(report["orphans"][0]["gateways"]) == [f"{account.region}/0"]
    assert not any(account.fake.leftovers().values())


def test_the_sweep_operator_leaves_what_another_deployment_has(
    account: Account, connections: dict[str, SimpleNamespace]
) -> None:
    connections["skyplane_default"] = of_clouds(account.settings())
    account.leave_a_fleet("staging")
    context: Any = {"ti": SimpleNamespace(dag_id="d", run_id="r", task_id="sweep", map_index=-1)}
    before = account.fake.leftovers()
    assert SkyplaneSweepOperator(task_id="sweep").execute(context)["orphans"] == []
    assert account.fake.leftovers() == before
