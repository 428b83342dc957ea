"""Every example DAG of Airflow runs as it stands, on one S3 server and local gateways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Home, S3Server

from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.rate_samples import write_samples

#: Airflow 3.1 takes half a minute for each run of a DAG on a busy machine.
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

REPOSITORY = Path(__file__).parents[2]
#: What the examples read; `example_runs.AT` decides about the day and the hour.
PREFIXES = (
    "clicks/2026-03-02/04/", "events/dt=2026-03-01/", "export/", "imagenet/", "models/", "nights/",
    "orders/", "tables/customers/", "tables/invoices/", "tables/orders/",
)  # fmt: skip
COPIES = {
    "daily_replication": ["example-paris/events/dt=2026-03-01/"],
    "deadline_at_six": ["example-paris/export/"],
    "fan_out": [f"example-{city}/models/" for city in ("paris", "tokyo", "oregon")],
    "mapped_fleets": [f"example-{city}/replicas/" for city in ("paris", "oregon")],
    "mapped_groups": [f"example-tokyo/tables/{name}/" for name in ("customers", "invoices")],
    "mapped_on_one_fleet": [
        f"example-paris/tables/{name}/" for name in ("customers", "invoices", "orders")
    ],
    "nightly_sweep": [],
    "on_arrival": ["example-paris/clicks/2026-03-02/04/"],
    "quick_transfer": ["example-paris/orders/"],
    "sydney_to_paris": ["example-paris/imagenet/"],
    "within_budget": ["example-paris/nights/"],
}
#: Prefixes of destinations -> those of their sources, if they are others.
SOURCES = {"replicas/": "models/"}
BUCKETS = ("sydney", "paris", "tokyo", "oregon")


@dataclass(frozen=True)
class Examples:
    server: S3Server
    results: dict[str, Any]


@pytest.fixture(scope="module")
def examples(
    tmp_path_factory: pytest.TempPathFactory, servers: tuple[S3Server, S3Server]
) -> Examples:
    server = servers[0]
    for city in BUCKETS:
        server.make_bucket(f"example-{city}")
    for prefix in PREFIXES:
        server.fill("example-sydney", prefix, {"a.bin": os.urandom(200_000), "_SUCCESS": b"ok"})
    home = Home(tmp_path_factory.mktemp("examples"))
    (home.directory / "run").mkdir(mode=0o700)
    learned_grid = str(home.directory / "rates")
    direct = ("aws:ap-southeast-2", "aws:eu-west-3")
    rate = EdgeMeasurement(*direct, 4.0, 64, 1, 30.0, 10**10, time.time())
    write_samples(learned_grid, [rate], CredentialSources())
    environment = {
        **home.environment,
        "AIRFLOW_HOME": str(home.directory / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "example_dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Shortly before 06:00 no plan would be fast enough.
        "SKYPLANE_EXPORT_DONE_BY": f"{datetime.now(UTC) + timedelta(hours=12):%H:%M}",
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(
            {"conn_type": "aws", "extra": {"endpoint_url": server.endpoint}}
        ),
        "AIRFLOW_CONN_SKYPLANE_DEFAULT": json.dumps(
            {"conn_type": "skyplane", "extra": {"learned_grid": learned_grid}}
        ),
        "AWS_ENDPOINT_URL_S3": server.endpoint,
        "AWS_DEFAULT_REGION": "ap-southeast-2",
        "NO_COLOR": "1",
        "PYTHONPATH": str(REPOSITORY),
    }
    results = home.directory / "results.json"
    program = Path(__file__).parent / "example_runs.py"
    done = subprocess.run(
        [sys.executable, str(program), str(results), *COPIES],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
    return Examples(server, json.loads(results.read_text()))


@pytest.mark.parametrize("name", sorted(COPIES))
def test_an_example_does_what_it_says(examples: Examples, name: str) -> None:
    run = examples.results[name]
    assert run["state"] == "success", run["tasks"]
    for place in COPIES[name]:
        bucket, _, prefix = place.partition("/")
        origin = examples.server.digests("example-sydney", SOURCES.get(prefix, prefix))
        assert origin
        assert examples.server.digests(bucket, prefix) == origin
    assert run["alive"] == []
    assert run["fleets"] == []


def test_all_examples_are_here(repository: Path) -> None:
    files = {path.stem for path in (repository / "example_dags").glob("*.py")}
    programs = {name for name in files if name.startswith("run_")}
    assert files - programs == set(COPIES)


def test_the_forecast_uses_rates_that_the_deployment_has_measured(examples: Examples) -> None:
    (job,) = examples.results["within_budget"]["returned"]["bill_of_month"]["jobs"]
    assert any("measured here" in note for note in job["notes"])


def test_mapped_transfers_share_one_fleet(examples: Examples) -> None:
    returned = examples.results["mapped_on_one_fleet"]["returned"]
    results = [value for task, value in returned.items() if task.startswith("transfer")]
    assert len(results) == 3
    assert len(returned["teardown"]["stopped"]) == len(returned["provision"]["gateways"])


def test_a_mapped_task_without_a_fleet_has_one_of_its_own(examples: Examples) -> None:
    run = examples.results["mapped_fleets"]
    results = [value for task, value in run["returned"].items() if task.startswith("copy")]
    assert [result["gateways"] for result in results] == ["local", "local"]
    assert run["labels"]["copy[0]"] == "s3://example-sydney/models/ to s3://example-paris/replicas/"


def test_a_mapped_group_has_a_fleet_for_each_index_and_its_teardown_finds_it(
    examples: Examples,
) -> None:
    run = examples.results["mapped_groups"]
    keys = set()
    for index in (0, 1):
        fleet = run["returned"][f"replicate.copy.provision[{index}]"]
        nodes = sorted(gateway["node"] for gateway in fleet["gateways"])
        assert nodes
        assert run["returned"][f"replicate.copy.teardown[{index}]"] == {"stopped": nodes}
        keys.add(fleet["key"])
    assert len(keys) == 2
    assert run["tasks"]["replicate.copy.finish[1]"] == "success"


def test_mapped_tasks_are_named_after_what_they_copy(examples: Examples) -> None:
    labels = examples.results["mapped_groups"]["labels"]
    pair = "s3://example-sydney/tables/invoices/ to s3://example-tokyo/tables/invoices/"
    for task in ("plan", "provision", "transfer"):
        assert labels[f"replicate.copy.{task}[1]"] == pair
    assert examples.results["mapped_on_one_fleet"]["labels"]["transfer[2]"] == (
        "s3://example-sydney/tables/orders/ to s3://example-paris/tables/orders/"
    )
    assert examples.results["mapped_on_one_fleet"]["labels"]["provision"] is None
