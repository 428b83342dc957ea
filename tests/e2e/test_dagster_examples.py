"""Every example of Dagster runs as it stands, on one S3 server and local gateways."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from tests.e2e.conftest import Home, S3Server

from skyplane_orchestration.dagster import SkyplaneResource
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.rate_samples import write_samples

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DAY, HOUR = "2026-03-01", "2026-03-02T04"
TABLES = ("customers", "invoices", "orders")
#: Example -> (the prefixes that it copies, how its run is launched).
COPIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "daily_replication": ((f"events/dt={DAY}/",), {"partition_key": DAY}),
    "deadline_at_six": (("export/",), {}),
    "fan_out": (("models/",), {}),
    "on_arrival": ((f"clicks/{HOUR}/",), {"partition_key": HOUR}),
    "partitions_on_one_fleet": (
        tuple(f"tables/{table}/" for table in TABLES),
        # The tags of a backfill in one run.
        {
            "tags": {
                "dagster/asset_partition_range_start": TABLES[0],
                "dagster/asset_partition_range_end": TABLES[-1],
            }
        },
    ),
    "quick_transfer": (("orders/",), {}),
    "sydney_to_paris": (("imagenet/",), {}),
    "within_budget": (("nights/",), {}),
}
#: Example -> cities beside Paris.
MORE_CITIES = {"fan_out": ("tokyo", "oregon")}


@pytest.fixture(scope="module")
def server(servers: tuple[S3Server, S3Server]) -> S3Server:
    """A server with what the examples read; those of Airflow have the other one."""
    server = servers[1]
    for city in ("sydney", "paris", "tokyo", "oregon"):
        server.make_bucket(f"example-{city}")
    for prefixes, _ in COPIES.values():
        for prefix in prefixes:
            body = os.urandom(200_000)
            server.fill("example-sydney", prefix, {"a.bin": body, "_SUCCESS": b"ok"})
    return server


@pytest.fixture
def private(home: Home, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Home:
    """This process as one of the private home, whose S3 is the server."""
    here = {"AWS_ENDPOINT_URL_S3": server.endpoint, "AWS_DEFAULT_REGION": "ap-southeast-2"}
    for name, value in {**home.environment, **here}.items():
        monkeypatch.setenv(name, value)
    # Shortly before 06:00 no plan would be fast enough.
    done_by = f"{datetime.now(UTC) + timedelta(hours=12):%H:%M}"
    monkeypatch.setattr("example_dags.dagster.deadline_at_six.DONE_BY", done_by)
    return home


@contextmanager
def run_of(name: str) -> Iterator[dg.ExecuteInProcessResult]:
    defs = import_module(f"example_dags.dagster.{name}").defs
    with dg.DagsterInstance.ephemeral() as instance:
        yield dg.materialize(
            [one for one in defs.assets if isinstance(one, dg.AssetsDefinition)],
            resources=defs.resources,
            instance=instance,
            raise_on_error=False,
            **COPIES[name][1],
        )


@pytest.mark.parametrize("name", sorted(COPIES))
def test_an_example_does_what_it_says(private: Home, server: S3Server, name: str) -> None:
    with run_of(name) as result:
        assert result.success
        checks = result.get_asset_check_evaluations()
        assert checks
        assert all(check.passed for check in checks)
    for city in ("paris", *MORE_CITIES.get(name, ())):
        for prefix in COPIES[name][0]:
            origin = server.digests("example-sydney", prefix)
            assert origin
            assert server.digests(f"example-{city}", prefix) == origin
    assert private.traces() == []


def test_the_tables_share_one_fleet(private: Home) -> None:
    with run_of("partitions_on_one_fleet") as result:
        outcome = result.output_for_node("tables_paris.transfer")
        assert set(outcome["results"]) == set(TABLES)
        assert "gateways" in outcome["fleet"]


def test_a_month_over_its_budget_costs_nothing(
    private: Home, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("example_dags.dagster.within_budget.BUDGET_USD", 1.0)
    with run_of("within_budget") as result:
        (failure,) = result.get_step_failure_events()
        assert "USD, over 1.0" in str(failure.step_failure_data)
        assert not result.get_asset_materialization_events()
    assert private.traces() == []


def test_the_forecast_uses_rates_that_the_deployment_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from example_dags.dagster.within_budget import forecast

    rate = EdgeMeasurement(
        "aws:ap-southeast-2", "aws:eu-west-3", 4.0, 64, 1, 30.0, 10**10, time.time()
    )
    write_samples(str(tmp_path), [rate], CredentialSources())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    resource = SkyplaneResource(learned_grid=str(tmp_path))
    (job,) = forecast(resource, "2027-01").jobs
    assert any("measured here" in note for note in job.notes)


def test_the_sensor_launches_a_run_for_each_hour_that_has_arrived(
    private: Home, server: S3Server
) -> None:
    from example_dags.dagster.on_arrival import HOURS, arrived, defs

    hour = HOURS.get_partition_keys()[-2]
    server.fill("example-sydney", f"clicks/{hour}/", {"_SUCCESS": b"ok"})
    with dg.build_sensor_context(repository_def=defs.get_repository_def()) as context:
        requests = arrived.evaluate_tick(context).run_requests
    assert requests is not None
    assert [(one.run_key, one.partition_key) for one in requests] == [(hour, hour)]


def test_the_sweep_removes_nothing_where_nothing_is_left(private: Home) -> None:
    defs = import_module("example_dags.dagster.nightly_sweep").defs
    (sensor,) = defs.sensors
    with dg.build_sensor_context(resources=defs.resources) as context:
        tick = sensor.evaluate_tick(context)
    assert "fleets removed: 0" in str(tick.skip_message)
    assert private.traces() == []


def test_all_examples_run(repository: Path) -> None:
    files = {path.stem for path in (repository / "example_dags/dagster").glob("*.py")}
    assert files == {*COPIES, "nightly_sweep"}
