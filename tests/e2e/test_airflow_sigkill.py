"""Tasks that are killed with SIGKILL in a real Airflow: scheduler, supervisors, retries.

When a task is killed is not a matter of time: a proxy before the destination lets so many
parts through and holds the others until the test lets them go.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest
from tests.e2e.airflow_site import AirflowSite, airflow_site
from tests.e2e.held_store import (
    LAST,
    OBJECTS,
    HeldStore,
    held_store,
    wait_for,
    write_objects,
)
from tests.faults import versitygw

from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.result import TransferResult

pytestmark = [
    pytest.mark.long,
    pytest.mark.e2e,
    pytest.mark.skipif(
        version("apache-airflow").startswith("2."), reason="Airflow 2 has no supervisors"
    ),
]

HERE: Final = Path(__file__).parent

DAGS: Final = ("killed_transfer", "killed_around", "frozen_transfer")


@dataclass(frozen=True)
class Lab:
    site: AirflowSite
    places: dict[str, HeldStore]


@pytest.fixture(scope="module")
def lab(s3_server: versitygw.Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("killed")
    source = write_objects(root / "source")
    places: dict[str, HeldStore] = {}
    extra = {
        "KILLED_SOURCE": str(source),
        "AWS_ACCESS_KEY_ID": s3_server.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3_server.secret_access_key,
    }
    with ExitStack() as stack:
        for dag_id in DAGS:
            bucket = dag_id.replace("_", "-")
            places[dag_id] = stack.enter_context(held_store(s3_server, bucket, source))
            extra[f"{dag_id.upper()}_ENDPOINT"] = places[dag_id].proxy.url
        site = stack.enter_context(airflow_site(root, HERE / "airflow_kill_dags", extra))
        yield Lab(site, places)


def gateways(lab: Lab) -> set[int]:
    """Process ids of the gateways that are up; one that starts has another for a while."""
    ready = lab.site.home.run_root.glob("*/*/ready.json")
    return {json.loads(path.read_text())["pid"] for path in ready} & set(lab.site.home.gateways())


def require_nothing_left(lab: Lab, place: HeldStore, keys: set[str]) -> None:
    assert lab.site.home.traces() == []
    assert place.open_uploads() == []
    assert place.keys() == keys  # Nor a journal.


def test_a_killed_transfer_is_joined_and_sends_nothing_twice(lab: Lab) -> None:
    """Twice: in mid-transfer, and so that the transfer is over when the last try comes."""
    place = lab.places["killed_transfer"]
    run = lab.site.start("killed_transfer")
    place.wait_until_half_way()
    run.wait_for_log("transfer", 1, "submitted transfer")
    fleet = gateways(lab)

    run.kill_task("transfer", 1)
    run.wait_for_log("transfer", 2, "joined transfer")
    assert gateways(lab) == fleet

    run.kill_worker("transfer", 2)
    place.take()
    wait_for(lambda: place.keys() >= set(OBJECTS), "the end of the transfer")
    run.wait_for_log("transfer", 3, "joined transfer")
    assert gateways(lab) <= fleet

    assert run.wait_for_end() == "success"
    assert run.task_states()["transfer"] == ("success", 3)
    place.require_sent_once()
    result = TransferResult.from_dict(run.returned("transfer"))
    assert (result.epoch, result.copied, result.failed) == (1, len(OBJECTS), 0)
    document = Fleet.from_dict(run.returned("provision"))
    assert {int(handle.details["pid"]) for handle in document.gateways} == fleet
    assert place.is_whole()
    require_nothing_left(lab, place, set(OBJECTS))


@pytest.mark.soak
def test_tasks_killed_while_they_provision_and_while_they_tear_down(lab: Lab) -> None:
    """The task of the transfer was killed while it ran, and is not retried."""
    place = lab.places["killed_around"]
    run = lab.site.start("killed_around")
    task = run.process_of("provision", 1)
    wait_for(lab.site.home.gateways, "the first process of a gateway")
    os.kill(task, signal.SIGSTOP)  # It cannot finish now, what it has started can.
    early = wait_for(lambda: gateways(lab), "a gateway")
    run.kill_task("provision", 1)
    run.wait_for_log("transfer", 1, "submitted transfer")
    fleet = gateways(lab)
    assert early <= fleet, "adopted"
    assert len(fleet) == len(run.returned("provision")["gateways"])

    place.wait_until_half_way()
    for pid in fleet:
        os.kill(pid, signal.SIGSTOP)
    run.kill_task("transfer", 1)
    run.kill_task("teardown", 1)
    place.refuse()
    for pid in fleet:
        os.kill(pid, signal.SIGCONT)

    assert run.wait_for_end() == "failed"
    assert run.task_states()["teardown"] == ("success", 2)
    assert len(run.returned("teardown")["stopped"]) == len(fleet)
    committed = place.keys()
    assert committed < set(OBJECTS) - {LAST}
    require_nothing_left(lab, place, committed)


@pytest.mark.soak
def test_a_task_that_was_only_frozen_cancels_when_it_wakes_and_is_run_again(lab: Lab) -> None:
    """Two tries at once: Airflow took the first for dead, and started the second."""
    place = lab.places["frozen_transfer"]
    run = lab.site.start("frozen_transfer")
    place.wait_until_half_way()
    run.wait_for_log("transfer", 1, "submitted transfer")
    fleet = gateways(lab)
    frozen = run.freeze_worker("transfer", 1)
    run.wait_for_log("transfer", 2, "joined transfer")
    place.refuse()
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)
    run.wait_for_log("transfer", 2, "Task failed with exception")
    place.take()

    assert run.wait_for_end() == "success"
    assert run.task_states()["transfer"] == ("success", 3)
    document = Fleet.from_dict(run.returned("provision"))
    assert {int(handle.details["pid"]) for handle in document.gateways} == fleet
    assert place.is_whole()
    require_nothing_left(lab, place, set(OBJECTS))
