"""Runs the scenario DAGs one after another in one process and writes what came of them.

    python airflow_scenarios.py RESULTS        RESULTS is written: one JSON object, by DAG id

A process of its own, since Airflow's settings hold from its import on. Of the provisioner
only the fault that a scenario is about is put in; all else is real.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from airflow.utils.db import initdb
from airflow.utils.session import create_session
from tests.e2e.airflow_pages import Place, visit
from tests.e2e.processes import processes_with

from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.hooks.settings import Settings
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait
from skyplane_orchestration.transfer.transfer_run import TransferRun
from skyplane_orchestration.triggers import transfer

SCENARIOS = (
    "all_good", "transfer_fails", "provision_fails", "teardown_fails", "one_task", "killed",
    "deferred", "deferred_fails", "deferred_one_task", "on_clouds", "killed_on_clouds",
    "hook", "second_fleet", "flags",
)  # fmt: skip

#: Reserved for documentation (RFC 5737): nothing on this machine can listen there.
NOWHERE = "203.0.113.1"


@contextmanager
def sink_cannot_start() -> Iterator[None]:
    def open_provisioner(settings: Settings, place: str, sources: object) -> LocalProvisioner:
        return LocalProvisioner(LocalOptions(address_map={"aws:eu-west-3": NOWHERE}))

    with patch.object(Settings, "open_provisioner", open_provisioner):
        yield


@contextmanager
def teardown_says_incomplete() -> Iterator[None]:
    destroy = LocalProvisioner.destroy

    def destroy_and_complain(self: LocalProvisioner, fleet_key: str) -> tuple[str, ...]:
        destroy(self, fleet_key)
        raise TeardownIncomplete("gateways of the fleet are still there: aws:eu-west-3/0")

    with patch.object(LocalProvisioner, "destroy", destroy_and_complain):
        yield


@contextmanager
def worker_is_told_to_end() -> Iterator[None]:
    """SIGTERM arrives while the transfer runs, as from a supervisor that ends the task."""

    def wait(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

    with patch.object(TransferRun, "wait", wait):
        yield


@contextmanager
def other_fleet_ends_in_the_pause() -> Iterator[None]:
    """The fleet for whose end a task waits ends as soon as it waits."""

    def pause_s(*_: object) -> float:
        provisioner = LocalProvisioner()
        for key in provisioner.sweep("one", dry_run=True).kept:
            provisioner.destroy(key)
        return 0.1

    with patch.object(FleetWait, "pause_s", pause_s):
        yield


def fleets_left() -> list[str]:
    root = Path(os.environ["XDG_RUNTIME_DIR"]) / "skyplane-orch"
    return sorted(entry.name for entry in root.iterdir()) if root.exists() else []


def run(dag: Any, at: datetime | None = None) -> dict[str, Any]:
    """Run a DAG, and tell what came of it.

    Args:
        at: logical date; None: now.
    """
    # Airflow 2 has another name for it.
    parameters = inspect.signature(dag.test).parameters
    name = "logical_date" if "logical_date" in parameters else "execution_date"
    dag_run = dag.test(**({name: at} if at else {}))
    rows = {
        f"{row.task_id}{f'[{row.map_index}]' if row.map_index >= 0 else ''}": row
        for row in dag_run.get_task_instances()
    }

    def pull(row: Any, key: str) -> Any:
        return row.xcom_pull(task_ids=row.task_id, map_indexes=row.map_index, key=key)

    return {
        "run_id": dag_run.run_id,
        "state": str(dag_run.state),
        "tasks": {name: str(row.state) for name, row in rows.items()},
        "returned": {name: pull(row, "return_value") for name, row in rows.items()},
        "failed_transfer": {name: pull(row, "failed_transfer") for name, row in rows.items()},
        "labels": {name: row.rendered_map_index for name, row in rows.items()},
        "alive": processes_with(f"{os.environ['XDG_RUNTIME_DIR']}/skyplane-orch"),
        "fleets": fleets_left(),
    }


def asset_extras() -> dict[str, Any]:
    """URI -> extra of the assets' events."""
    try:
        events = import_module("airflow.models.asset").AssetEvent
    except ModuleNotFoundError:  # Airflow 2 calls them datasets.
        events = import_module("airflow.models.dataset").DatasetEvent
    with create_session() as session:
        return {event.uri: event.extra for event in session.query(events)}


def start_metrics() -> None:
    """As a worker of Airflow 3.2 and later does; earlier releases need nothing."""
    try:
        factory = import_module("airflow.sdk.observability.metrics.stats_utils").get_stats_factory()
    except ModuleNotFoundError:
        return
    stats = import_module("airflow.sdk.observability.stats")
    stats.initialize(factory=factory, export_legacy_names=False)


def main() -> None:
    # What Airflow loads and makes lives to the end; collections take an eighth of the time.
    gc.disable()
    initdb()
    start_metrics()
    dags = runpy.run_path(str(Path(__file__).parent / "airflow_dags" / "scenario_dags.py"))
    faults = {
        "provision_fails": sink_cannot_start,
        "teardown_fails": teardown_says_incomplete,
        "killed": worker_is_told_to_end,
        "killed_on_clouds": worker_is_told_to_end,
        "second_fleet": other_fleet_ends_in_the_pause,
    }
    results: dict[str, Any] = {}
    for name in SCENARIOS:
        # No scheduler records a deferral here.
        at_once = patch.object(transfer, "_FIRST_EVENT_AFTER_S", 0.0)
        with at_once, faults.get(name, nullcontext)():
            results[name] = run(dags[name])
    results["all_good_again"] = run(dags["all_good"])
    results["assets"] = asset_extras()
    places = {
        f"{name}.{task}": Place(name, results[name]["run_id"], task)
        for name in SCENARIOS
        for task in results[name]["tasks"]
    }
    results["pages"] = visit(places, {name: dags[name] for name in SCENARIOS})
    # Not to stdout: the processes that Airflow forks log there too.
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
