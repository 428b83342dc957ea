"""The hook: identities that every task of a run agrees on, and its connection."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fake_client import FakeClient
from tests.hooks.conftest import connection

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import ConfigurationInvalid, TooManyFleets
from skyplane_orchestration.hooks.credential_refs import credential_ref
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.client_context import StopAt


def context(**instance: Any) -> Any:
    values = {"dag_id": "nightly", "run_id": "r1", "task_id": "t", "map_index": -1, **instance}
    return {"ti": SimpleNamespace(**values)}


pytestmark = pytest.mark.usefixtures("connections")


def key(fleet_name: str = "g", **instance: Any) -> str:
    return SkyplaneHook().client(context(**instance), fleet_name).identity.fleet_key()


def test_all_tasks_and_tries_of_a_run_find_one_fleet() -> None:
    assert (
        key(task_id="provision", try_number=1)
        == key(task_id="teardown", try_number=3)
        == key(map_index=None)
    )


@pytest.mark.parametrize(
    "other", [{"dag_id": "x"}, {"run_id": "x"}, {"map_index": 0}, {"fleet_name": "x"}]
)
def test_other_dags_runs_indices_and_names_have_fleets_of_their_own(other: dict[str, Any]) -> None:
    assert key(**other) != key()


def test_deployment_is_part_of_the_key(connections: dict[str, SimpleNamespace]) -> None:
    before = key()
    connections["skyplane_default"] = connection(extra_dejson={"deployment": "prod"})
    assert key() != before


def test_only_the_default_connection_may_be_missing() -> None:
    assert SkyplaneHook().settings.deployment == "local"
    with pytest.raises(ConfigurationInvalid, match="no connection 'prod'"):
        _ = SkyplaneHook("prod").settings


def test_airflow_references_are_resolved_when_asked(
    connections: dict[str, SimpleNamespace],
) -> None:
    hook = SkyplaneHook()
    sources = CredentialSources({"airflow": hook.resolve_credentials})
    place = Location("s3://bucket/", credential_ref=credential_ref("aws_prod"))
    with pytest.raises(ConfigurationInvalid, match="no connection 'aws_prod'"):
        sources.resolve(place)
    connections["aws_prod"] = connection(conn_type="aws", login="AK", password="SK")
    found = sources.resolve(place)
    assert found is not None
    assert found["access_key_id"] == "AK"


def test_no_connection_id_means_the_workers_own_credentials() -> None:
    assert credential_ref(None) == credential_ref("") == ""


def test_connection_test(connections: dict[str, SimpleNamespace]) -> None:
    works, message = SkyplaneHook().test_connection()
    assert works, message
    connections["skyplane_default"] = connection(extra_dejson={"grid": "/no/such/grid"})
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert "/no/such/grid" in message


def test_connection_test_says_what_the_provisioner_lacks(
    connections: dict[str, SimpleNamespace], tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    connections["skyplane_default"] = connection(extra_dejson={"run_root": str(link)})
    works, message = SkyplaneHook().test_connection()
    assert not works
    assert re.fullmatch(r"run root: the run directory .*/link cannot be used.*run_root", message)


def test_connection_test_tells_all_that_is_wrong_at_once(
    connections: dict[str, SimpleNamespace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "link"
    link.symlink_to("/tmp")
    warning = Finding("range", True, "it is wide", is_warning=True)
    check = Client.check_provisioner
    monkeypatch.setattr(Client, "check_provisioner", lambda client: (*check(client), warning))
    extra = {"run_root": str(link), "grid": "/no/such/grid"}
    connections["skyplane_default"] = connection(extra_dejson=extra)
    works, message = SkyplaneHook().test_connection()
    assert not works
    for part in ("grid: ", "/no/such/grid", "run root: ", "range: it is wide"):
        assert part in message


def test_form_for_older_airflow() -> None:
    behaviour = SkyplaneHook.get_ui_field_behaviour()
    assert set(behaviour) == {"hidden_fields", "relabeling", "placeholders"}


def test_a_client_stops_its_transfers_before_the_execution_timeout() -> None:
    start = datetime(2026, 1, 2, 3, tzinfo=UTC)
    for seconds, reserve_s in ((9, 3), (60, 20), (100, 20), (300, 30), (600, 60), (3600, 60)):
        limit = timedelta(seconds=seconds)
        task = SimpleNamespace(execution_timeout=limit)
        client = SkyplaneHook().client(context(task=task, start_date=start), "g")
        assert client._context.stop_at == StopAt(
            start.timestamp() + limit.total_seconds() - reserve_s,
            f"the task has an execution_timeout of {limit}",
        )
    task = SimpleNamespace(execution_timeout=None)
    for found in (context(), context(task=task, start_date=start)):
        assert SkyplaneHook().client(found, "g")._context.stop_at is None


def test_a_users_task_runs_a_job_as_one_task_does(
    monkeypatch: pytest.MonkeyPatch, connections: dict[str, SimpleNamespace]
) -> None:
    clients: list[tuple[str, str, FakeClient]] = []

    def client(_: SkyplaneHook, context: Any, fleet_name: str, gateways: str) -> FakeClient:
        clients.append((fleet_name, gateways, FakeClient()))
        clients[-1][2].full = [TooManyFleets.of("prod", 1, ("aa",))]
        return clients[-1][2]

    monkeypatch.setattr(SkyplaneHook, "client", client)
    connections["minio"] = connection(conn_type="aws", extra_dejson={"endpoint_url": "http://m:9"})
    job = TransferJob(
        Location("s3://a/", credential_ref=credential_ref("minio")), Location("s3://b/"), move=True
    )
    assert SkyplaneHook().run(context(), job, manifest="/m").copied == 30
    SkyplaneHook().run(context(), job, fleet_name="mine", gateways="always")
    assert [(name, gateways) for name, gateways, _ in clients] == [
        ("t", "auto"),
        ("mine", "always"),
    ]
    fake = clients[0][2]
    assert fake.verbs == ["run"]
    ((placed, manifest),) = fake.of("run")
    assert (placed.source.endpoint_url, manifest) == ("http://m:9", "/m")
