"""A whole Airflow 3 with kills, restarts and clears, as rows of expectations.

    python -m tests.e2e_airflow        the status is 1 if an expectation was not met

Scheduler, triggerer, API server and DAG processor are processes of their own. All is asked for by
REST. The objects lie on S3 servers of this machine; a proxy before each destination holds a
transfer half way until the scenario lets it go.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.e2e.airflow_site import ALL_SERVICES, AirflowSite, Run, airflow_site
from tests.e2e.expectations import Expectations
from tests.e2e.held_store import (
    LAST,
    OBJECTS,
    PATIENCE_S,
    HeldStore,
    held_store,
    take,
    wait_for,
    write_objects,
)
from tests.e2e.processes import leave_by_sigterm, processes_with
from tests.e2e_airflow.rest import Rest
from tests.faults import versitygw
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule
from tests.statsd_socket import StatsdSocket, statsd_socket

HERE: Final = Path(__file__).parent
EXAMPLE: Final = HERE.parents[1] / "example_dags" / "daily_replication.py"
DAGS: Final = ("waits_in_worker", "waits_in_triggerer", "marked_failed", "timed_out")
TRANSFER: Final = "move.transfer"
PASSWORD: Final = "of the tests"
#: The run of the daily example copies the day before.
RUN_DATE, DAY = "2026-03-02T00:00:00Z", "dt=2026-03-01"
#: Mapped transfers on one fleet.
TABLES: Final = 50
#: Lines of a terminal.
SCREEN: Final = 24


@dataclass(frozen=True)
class Lab:
    site: AirflowSite
    rest: Rest
    places: dict[str, HeldStore]
    mapped: FaultProxy
    statsd: StatsdSocket
    table: Expectations

    def start(self, dag_id: str) -> tuple[Run, HeldStore]:
        """A run that is held half way."""
        self.rest.trigger(dag_id)
        place = self.places[dag_id]
        place.wait_until_half_way()
        return Run(self.site, dag_id), place

    def end_of(self, dag_id: str, patience_s: float = PATIENCE_S) -> str:
        return wait_for(
            lambda: state if (state := self.rest.state(dag_id)) in ("success", "failed") else "",
            f"the end of {dag_id}",
            patience_s,
        )

    def wait_for_state(self, dag_id: str, task_id: str, state: str) -> None:
        wait_for(
            lambda: self.rest.task(dag_id, task_id)["state"] == state, f"{task_id} to be {state}"
        )

    def wait_for_try(self, dag_id: str, task_id: str, number: int) -> None:
        wait_for(
            lambda: self.rest.task(dag_id, task_id)["try_number"] >= number,
            f"try {number} of {task_id}",
        )

    def expect_nothing_left(self, place: HeldStore) -> None:
        self.table.expect("no gateway and no run directory is left", self.site.home.traces(), [])
        self.table.expect("no upload is open", place.open_uploads(), [])
        keys = place.keys()
        journals = [key for key in keys if ".skyplane/" in key]
        self.table.expect("no journal is left", journals, [])


@contextmanager
def lab(root: Path, table: Expectations) -> Iterator[Lab]:
    dags = root / "dags"
    shutil.copytree(HERE / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXAMPLE, dags)
    folder = write_objects(root / "objects")
    (root / "server").mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(versitygw.running(root / "server"))
        places = {
            name: stack.enter_context(held_store(server, name.replace("_", "-"), folder))
            for name in DAGS
        }
        client = places[DAGS[0]].client
        # The journal gets through, so that each transfer runs; its object is held.
        rule = Rule("hold", method="PUT", target=r"/copy/\d+/rows", times=0)
        mapped = stack.enter_context(running(server.url, [rule]))
        passwords = root / "passwords.json"
        passwords.write_text(json.dumps({"admin": PASSWORD}))
        statsd = stack.enter_context(statsd_socket())
        for bucket in ("source", "daily", "mapped", "short"):
            client.create_bucket(Bucket=bucket)
        for number in range(TABLES):
            client.put_object(Bucket="source", Key=f"tables/{number:02}/rows", Body=b"%d" % number)
        for key in OBJECTS:
            body = (folder / key).read_bytes()
            client.put_object(Bucket="source", Key=f"data/{key}", Body=body)
        for key, body in (("part-0", b"rows"), (LAST, b"")):
            client.put_object(Bucket="source", Key=f"events/{DAY}/{key}", Body=body)
        extra = {
            "E2E_SOURCE": server.url,
            **{f"E2E_{name.upper()}": place.proxy.url for name, place in places.items()},
            "E2E_MAPPED": mapped.url,
            "SKYPLANE_DAILY_SOURCE": "s3://source/events",
            "SKYPLANE_DAILY_DESTINATION": "s3://daily/events",
            "SKYPLANE_PROCESSES_PER_INSTANCE": "1",
            "AWS_ENDPOINT_URL_S3": server.url,
            "AWS_ACCESS_KEY_ID": server.access_key_id,
            "AWS_SECRET_ACCESS_KEY": server.secret_access_key,
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
            **statsd.environment,
        }
        site = stack.enter_context(airflow_site(root, dags, extra, ALL_SERVICES))
        yield Lab(site, Rest(site.url, PASSWORD), places, mapped, statsd, table)


def replicate_a_day(lab: Lab) -> None:
    """The example, as shipped, with an address of a test server."""
    lab.rest.trigger("daily_replication", RUN_DATE)
    lab.table.expect("the run succeeds", lab.end_of("daily_replication"), "success")
    client = lab.places[DAGS[0]].client
    rows = client.list_objects_v2(Bucket="daily", Prefix=f"events/{DAY}/")["Contents"]
    copies = (row["Key"] for row in rows if "/.skyplane/manifest/" not in row["Key"])
    keys = {key.rpartition("/")[2] for key in copies}
    lab.table.expect("the day is at the destination", keys, {"part-0", LAST})
    lab.table.expect("no gateway and no run directory is left", lab.site.home.traces(), [])


def follow_the_links(lab: Lab) -> None:
    """From the tasks of the daily example; its worker has also emitted metrics."""
    dag_id = "daily_replication"
    for task, title, words in (
        ("plan", "Plan", "<svg"),
        ("provision", "Plan", "<svg"),
        ("transfer", "Transfer", "succeeded"),
        ("transfer", "Lineage", "goodput_gbps"),
    ):
        path = lab.rest.links(dag_id, f"replicate.{task}")[title]
        lab.table.expect(f"{task} has the link {title}", path.startswith("/skyplane/"))
        status, page = lab.rest.page(path)
        lab.table.expect(f"{title} of {task} is shown", (status, words in page), (200, True))
        status, page = lab.rest.page(path, with_login=False)
        lab.table.expect("not without a login", (status, words in page), (401, False))
    names = {metric.name.rpartition(".")[2] for metric in lab.statsd.received()}
    lab.table.expect("the worker has sent metrics", {"bytes", "objects", "cost_usd"} <= names)


def kill_the_task(lab: Lab) -> None:
    run, place = lab.start("waits_in_worker")
    run.wait_for_log("transfer", 1, "submitted transfer")
    gateways = set(lab.site.home.gateways())
    run.kill_task("transfer", 1)
    run.wait_for_log("transfer", 2, "joined transfer")
    lab.table.expect("the retry joins", "joined transfer" in run.log("transfer", 2))
    lab.table.expect("the gateways are the same", set(lab.site.home.gateways()), gateways)
    place.take()
    lab.table.expect("the run succeeds", lab.end_of(run.dag_id), "success")
    lab.table.expect("no byte was sent twice", place.sent_again(), {})
    lab.table.expect("the copy is whole", place.is_whole())
    lab.expect_nothing_left(place)


def clear_tasks(lab: Lab, dag_id: str) -> None:
    """Of the last run, one task after another."""
    place = lab.places[dag_id]
    for name in ("transfer", "teardown", "provision"):
        number = lab.rest.task(dag_id, f"move.{name}")["try_number"]
        cleared = lab.rest.clear(dag_id, f"move.{name}")
        lab.wait_for_try(dag_id, f"move.{name}", number + 1)
        state = lab.end_of(dag_id)
        lab.table.expect(
            f"{name} cleared ({', '.join(cleared)}): the run succeeds", state, "success"
        )
        lab.table.expect(f"{name} cleared: the copy is whole", place.is_whole())
        lab.expect_nothing_left(place)


def restart_the_triggerer(lab: Lab) -> None:
    run, place = lab.start("waits_in_triggerer")
    lab.wait_for_state(run.dag_id, TRANSFER, "deferred")
    pool = lab.rest.pool()
    lab.table.expect("no slot is held while deferred", pool["running_slots"], 0)
    lab.site.kill_service("triggerer")
    lab.site.start_service(*ALL_SERVICES[2])
    wait_for(lambda: lab.rest.call("GET", "monitor/health")["triggerer"]["status"] == "healthy",
             "the triggerer")  # fmt: skip
    lab.table.expect("still deferred", lab.rest.task(run.dag_id, TRANSFER)["state"], "deferred")
    place.take()
    lab.table.expect("the run succeeds", lab.end_of(run.dag_id), "success")
    lab.table.expect("in the first try", lab.rest.task(run.dag_id, TRANSFER)["try_number"], 1)
    lab.table.expect("in one epoch", lab.rest.result(run.dag_id, TRANSFER)["epoch"], 1)
    lab.table.expect("no byte was sent twice", place.sent_again(), {})
    lab.table.expect("the copy is whole", place.is_whole())
    lab.expect_nothing_left(place)


def mark_failed(lab: Lab) -> None:
    run, place = lab.start("marked_failed")
    lab.wait_for_state(run.dag_id, TRANSFER, "deferred")
    place.refuse()
    lab.rest.mark_failed(run.dag_id, TRANSFER)
    lab.table.expect("the run fails", lab.end_of(run.dag_id), "failed")
    teardown = lab.rest.task(run.dag_id, "move.teardown")
    lab.table.expect("its gateways are torn down", teardown["state"], "success")
    arrived = place.keys()
    lab.table.expect("what announces the others is withheld", LAST in arrived, False)
    lab.expect_nothing_left(place)


def time_out(lab: Lab) -> None:
    """Before `execution_timeout` the task stops its transfer, and a clear continues it.

    The gateways wait for the requests that the store holds, so Airflow cuts the task off at last.
    """
    run, place = lab.start("timed_out")
    lab.table.expect("the run fails", lab.end_of(run.dag_id, patience_s=300), "failed")
    log = run.log("transfer", 1)
    lab.table.expect("the links log no error", "XCom not found" in log, False)
    left = lab.rest.result(run.dag_id, TRANSFER, name="failed_transfer")
    reason = "the task has an execution_timeout of 0:01:00"
    lab.table.expect("its result is there", (left["state"], left["error"]), ("failed", reason))
    place.take()
    lab.rest.clear(run.dag_id, TRANSFER)
    lab.wait_for_state(run.dag_id, TRANSFER, "success")
    earlier = lab.rest.result(run.dag_id, TRANSFER)["copied_earlier"]
    lab.table.expect("the cleared task continues it", earlier > 0)
    lab.table.expect("the copy is whole", place.is_whole())
    lab.end_of(run.dag_id)
    lab.expect_nothing_left(place)


def lines_shown(log: str) -> int:
    """Lines of a task's log in Airflow's page, which folds each group into one line."""
    count, is_folded = 0, False
    for line in log.splitlines():
        count += not is_folded
        is_folded = line.startswith("::group::") or (is_folded and line != "::endgroup::")
    return count


def copy_fifty_tables(lab: Lab) -> None:
    """One mapped task for each table; no object arrives before all tasks are deferred."""
    lab.rest.trigger("mapped")
    wait_for(
        lambda: lab.site.states_of("mapped", "transfer").count("deferred") == TABLES,
        "all transfers to be deferred",
        patience_s=600,
    )
    pool = lab.rest.pool()
    lab.table.expect("no slot is held while deferred", pool["running_slots"], 0)
    gateways = set(lab.site.home.gateways())
    lab.table.expect("one fleet: a gateway at each end", len(gateways), 2)
    take(lab.mapped)
    lab.table.expect("the run succeeds", lab.end_of("mapped", patience_s=600), "success")
    results = [lab.rest.result("mapped", "transfer", index) for index in range(TABLES)]
    lab.table.expect("each has copied its table", {each["copied"] for each in results}, {1})
    _, page = lab.rest.page(lab.rest.links("mapped", "transfer", 7)["Transfer"])
    lab.table.expect("each has a page of its own", "/copy/07/" in page and "/copy/08/" not in page)
    logs = [lab.site.log_of("mapped", "transfer", 1, index) for index in range(TABLES)]
    longest = max(map(lines_shown, logs))
    lab.table.expect(f"each log fits a screen ({longest} lines)", longest <= SCREEN)
    client = lab.places[DAGS[0]].client
    copies = [
        client.get_object(Bucket="mapped", Key=f"copy/{number:02}/rows")["Body"].read()
        for number in range(TABLES)
    ]
    lab.table.expect("the copies are whole", copies, [b"%d" % number for number in range(TABLES)])
    lab.table.expect("no gateway and no run directory is left", lab.site.home.traces(), [])


def copy_in_seconds(lab: Lab) -> None:
    """A trigger that fired at once would meet a scheduler that still records the deferral."""
    lab.rest.trigger("short")
    lab.table.expect("the run succeeds", lab.end_of("short", patience_s=600), "success")
    for name in ("in_slot", "deferred"):
        states = lab.site.states_of("short", name)
        lab.table.expect(f"each task {name} succeeds", states, ["success"] * len(states))
    lab.table.expect("no gateway and no run directory is left", lab.site.home.traces(), [])


SCENARIOS: Final = (
    ("the daily example", replicate_a_day),
    ("links and metrics", follow_the_links),
    ("the task is killed", kill_the_task),
    ("a task is cleared", partial(clear_tasks, dag_id="waits_in_worker")),
    ("the triggerer is restarted", restart_the_triggerer),
    ("a deferrable task is cleared", partial(clear_tasks, dag_id="waits_in_triggerer")),
    ("marked failed while deferred", mark_failed),
    ("a task is out of time", time_out),
    ("fifty tables", copy_fifty_tables),
    ("transfers of a few seconds", copy_in_seconds),
)


def main() -> int:
    leave_by_sigterm()
    table = Expectations()
    with tempfile.TemporaryDirectory(prefix="e2e-airflow-") as folder:
        try:
            with lab(Path(folder), table) as made:
                for name, play in SCENARIOS:
                    with table.scenario(name):
                        play(made)
        except versitygw.Unavailable as error:
            print(f"skipped: {error}")
            return 0
        with table.scenario("at the end"):
            table.expect(
                "no process is left",
                processes_with(f"AIRFLOW_HOME={folder}/airflow\0", "environ"),
                [],
            )
        if table.failed:
            for path in sorted(Path(folder).glob("*.log")):
                print(f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}")
    return table.close()


if __name__ == "__main__":
    sys.exit(main())
