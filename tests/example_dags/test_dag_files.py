"""The example DAGs import without a network, quickly, and say what they promise."""

from __future__ import annotations

import runpy
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pendulum import UTC, DateTime

from skyplane_orchestration.operators import (
    SkyplaneProvisionOperator,
    SkyplaneTransferOperator,
)

EXAMPLES = {
    "daily_replication",
    "deadline_at_six",
    "fan_out",
    "mapped_fleets",
    "mapped_groups",
    "mapped_on_one_fleet",
    "nightly_sweep",
    "on_arrival",
    "quick_transfer",
    "sydney_to_paris",
    "within_budget",
}
#: Without a fleet of their own.
NO_FLEET = {"fan_out", "mapped_fleets", "nightly_sweep", "quick_transfer"}


@pytest.fixture(scope="module")
def dagbag(repository: Path) -> Any:
    try:
        module = import_module("airflow.dag_processing.dagbag")
    except ModuleNotFoundError:  # Airflow before 3.2.
        module = import_module("airflow.models.dagbag")
    return module.DagBag(str(repository / "example_dags"))


def test_all_files_import(dagbag: Any) -> None:
    assert dagbag.import_errors == {}
    assert set(dagbag.dags) == EXAMPLES


def test_support_files_are_not_taken_for_dags(dagbag: Any) -> None:
    files = {Path(stat.file).name for stat in dagbag.dagbag_stats}
    assert files == {f"{name}.py" for name in EXAMPLES}


@pytest.mark.parametrize("name", sorted(EXAMPLES - NO_FLEET))
def test_every_provisioned_fleet_is_torn_down(dagbag: Any, name: str) -> None:
    dag = dagbag.dags[name]
    provisions = [task for task in dag.tasks if isinstance(task, SkyplaneProvisionOperator)]
    assert provisions
    for task in provisions:
        teardowns = [down for down in task.downstream_list if down.is_teardown]
        assert [vars(down)["fleet_name"] for down in teardowns] == [task.fleet_name]
        assert all(down.on_failure_fail_dagrun for down in teardowns)


def test_a_run_of_the_daily_dag_copies_the_day_before_it(dagbag: Any) -> None:
    from airflow.timetables.interval import CronDataIntervalTimetable

    dag = dagbag.dags["daily_replication"]
    transfer = dag.get_task("replicate.transfer")
    assert isinstance(transfer, SkyplaneTransferOperator)
    assert vars(transfer)["conflict"] == "replace-if-different"
    assert transfer.source_url is not None
    assert transfer.source_url.endswith("/dt={{ data_interval_start | ds }}/")
    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    interval = dag.timetable.infer_manual_data_interval(
        run_after=DateTime(2026, 3, 2, 5, tzinfo=UTC)
    )
    assert interval.start.date().isoformat() == "2026-03-01"


@pytest.mark.parametrize(
    ("now", "hours"), [((2, 0), 4), ((5, 30), 0.5), ((6, 0), 24), ((23, 0), 7)]
)
def test_the_deadline_is_the_next_six_o_clock(
    repository: Path, now: tuple[int, int], hours: float
) -> None:
    found = runpy.run_path(str(repository / "example_dags" / "deadline_at_six.py"))
    at = datetime(2026, 3, 1, *now, tzinfo=UTC)
    assert found["seconds_until"]("06:00", at) == hours * 3600 - found["RESERVE_S"]
