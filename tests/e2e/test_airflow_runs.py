"""Whole runs of DAGs: what ends as what, what moved, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.clouds.fakes import open_arm, open_ec2, open_gce
from tests.clouds.gateways import GATEWAY, IMAGE
from tests.statsd_socket import Metric, statsd_socket

from skyplane_orchestration import Fleet, TransferPlan, TransferResult
from strict_clouds.arm import SUBSCRIPTION, StrictArm
from strict_clouds.ec2 import StrictEc2
from strict_clouds.gce import PROJECT, StrictGce
from strict_clouds.world import World

#: Airflow 3.1 takes half a minute for each run of a DAG on a busy machine.
pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

FILES = {"a.bin": 6_000_000, "sub/b + c.txt": 17, "empty": 0, "_SUCCESS": 2}
HERE = Path(__file__).parent
#: Airflow is below a path, as behind a proxy.
BASE_URL = "http://airflow.test/data"
FLEET_SECRET, AWS_SECRET = "5ec2e7" * 11, "a-key-that-may-launch"


@dataclass(frozen=True)
class Scenarios:
    source: Path
    destination: Path
    results: dict[str, Any]
    log: str
    #: What the fakes of the clouds have after all scenarios, and machines that run.
    left_on_clouds: dict[str, Any]
    #: What OpenLineage's file transport has written.
    events: list[dict[str, Any]]
    #: What a StatsD server has got.
    metrics: list[Metric]

    def copy_is_whole(self, name: str) -> bool:
        return all(
            (self.destination / name / key).read_bytes() == (self.source / key).read_bytes()
            for key in FILES
        )


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Scenarios:
    """All scenarios, run in one process: the first run of a DAG takes many seconds."""
    root = tmp_path_factory.mktemp("scenarios")
    source, destination = root / "source", root / "destination"
    for key, size in FILES.items():
        (source / key).parent.mkdir(parents=True, exist_ok=True)
        (source / key).write_bytes(os.urandom(size))
    (destination / "transfer_fails").mkdir(parents=True)
    (destination / "transfer_fails" / "a.bin").write_bytes(b"was here before")
    (destination / "deferred_fails").mkdir()
    (destination / "deferred_fails" / "a.bin").write_bytes(b"was here before")
    (destination / "hook_fails").mkdir()
    (destination / "hook_fails" / "a.bin").write_bytes(b"was here before")
    (root / "run").mkdir(mode=0o700)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(root / "airflow"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow_dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__API__BASE_URL": BASE_URL,
        "AIRFLOW__WEBSERVER__BASE_URL": BASE_URL,
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
            {"type": "file", "log_file_path": str(root / "lineage.json"), "append": True}
        ),
        "NO_COLOR": "1",
        "PYTHONPATH": str(HERE.parents[1]),
        "SCENARIO_SOURCE": str(source),
        "SCENARIO_DESTINATION": str(destination),
        "XDG_CONFIG_HOME": str(root / "config"),
        "XDG_RUNTIME_DIR": str(root / "run"),
    }
    command = [sys.executable, str(HERE / "airflow_scenarios.py"), str(root / "results.json")]
    with (
        World(root / "machines", GATEWAY) as world,
        open_ec2(world, deployments=("tests",)) as ec2,
        open_gce(world) as gce,
        open_arm(world) as arm,
        statsd_socket() as statsd,
    ):
        ec2.conditions.opt_in["ap-southeast-2"] = "opt-in-not-required"
        arm.conditions.operation_polls = 0
        environment |= connections(ec2, gce, arm) | statsd.environment
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        metrics = statsd.received()
        assert done.returncode == 0, (done.stdout + done.stderr)[-8000:]
        left = {
            "aws": ec2.leftovers(),
            "gcp": gce.leftovers(),
            "azure": arm.leftovers(),
            "machines": [one.address for one in world.machines if one.is_running],
        }
    results = json.loads((root / "results.json").read_text())
    events = [json.loads(line) for line in (root / "lineage.json").read_text().splitlines()]
    log = done.stdout + done.stderr
    return Scenarios(source, destination, results, log, left, events, metrics)


def connections(ec2: StrictEc2, gce: StrictGce, arm: StrictArm) -> dict[str, str]:
    """The connection `clouds`, and that with the credentials of its AWS."""
    clouds = {
        "image": IMAGE.image,
        "control_cidrs": ["127.0.0.1/32"],
        "poll_s": 0.2,
        "aws": {"endpoint_url": ec2.url, "credential_ref": "airflow:aws_gateways"},
        "gcp": {"endpoint_url": gce.url, "project": PROJECT},
        "azure": {"endpoint_url": arm.url, "subscription_id": SUBSCRIPTION},
    }
    extra = {"provisioner": "cloud", "deployment": "tests", "clouds": clouds}
    found = {
        "clouds": {"conn_type": "skyplane", "password": FLEET_SECRET, "extra": extra},
        "aws_gateways": {"conn_type": "aws", "login": "AKTEST", "password": AWS_SECRET},
    }
    one = {"deployment": "one", "max_active_fleets": 1}
    found["one_fleet"] = {"conn_type": "skyplane", "extra": one}
    return {f"AIRFLOW_CONN_{name.upper()}": json.dumps(each) for name, each in found.items()}


@pytest.mark.parametrize(
    "name",
    [
        "all_good",
        "all_good_again",
        "transfer_fails",
        "provision_fails",
        "teardown_fails",
        "one_task",
        "killed",
        "deferred",
        "deferred_fails",
        "deferred_one_task",
        "on_clouds",
        "killed_on_clouds",
        "hook",
        "second_fleet",
        "flags",
    ],
)
def test_nothing_is_left_behind(scenarios: Scenarios, name: str) -> None:
    assert scenarios.results[name]["alive"] == []
    assert scenarios.results[name]["fleets"] == []


def test_all_good(scenarios: Scenarios) -> None:
    run = scenarios.results["all_good"]
    assert run["state"] == "success"
    assert set(run["tasks"].values()) == {"success"}
    assert run["returned"]["after"] == "after"
    assert scenarios.copy_is_whole("all_good")
    result = TransferResult.from_dict(run["returned"]["move.transfer"])
    assert (result.copied, result.copied_bytes) == (len(FILES), sum(FILES.values()))
    assert TransferPlan.from_dict(run["returned"]["move.plan"]).src == "local:this-machine"
    fleet = Fleet.from_dict(run["returned"]["move.provision"])
    assert run["returned"]["move.teardown"] == {"stopped": [fleet.gateways[0].node]}


def test_a_run_with_nothing_to_copy_starts_no_gateways_and_is_green(scenarios: Scenarios) -> None:
    run = scenarios.results["all_good_again"]
    assert run["state"] == "success"
    assert set(run["tasks"].values()) == {"success"}
    assert TransferPlan.from_dict(run["returned"]["move.plan"]).cost.total_usd == 0
    assert Fleet.from_dict(run["returned"]["move.provision"]).gateways == ()
    result = TransferResult.from_dict(run["returned"]["move.transfer"])
    assert (result.skipped, result.copied, result.used_gateways) == (len(FILES), 0, False)
    assert run["returned"]["move.teardown"] == {"stopped": []}


def test_a_failed_transfer_is_torn_down_and_fails_the_run(scenarios: Scenarios) -> None:
    run = scenarios.results["transfer_fails"]
    assert run["state"] == "failed"
    assert run["tasks"] == {
        "move.plan": "success",
        "move.provision": "success",
        "move.transfer": "failed",
        "move.teardown": "success",
        "move.finish": "upstream_failed",
    }
    nodes = [row["node"] for row in run["returned"]["move.provision"]["gateways"]]
    assert len(nodes) >= 2
    assert run["returned"]["move.teardown"]["stopped"] == sorted(nodes)
    left = TransferResult.from_dict(run["failed_transfer"]["move.transfer"])
    # What announces the others is withheld when one of them failed.
    assert {Path(failure.source).name for failure in left.failures} == {"a.bin", "_SUCCESS"}
    there = scenarios.destination / "transfer_fails"
    assert (there / "a.bin").read_bytes() == b"was here before"
    assert not (there / "_SUCCESS").exists()


def test_a_failed_provision_undoes_itself_and_teardown_still_runs(scenarios: Scenarios) -> None:
    run = scenarios.results["provision_fails"]
    assert run["state"] == "failed"
    assert run["tasks"] == {
        "move.plan": "success",
        "move.provision": "failed",
        "move.transfer": "upstream_failed",
        "move.teardown": "success",
        "move.finish": "upstream_failed",
    }
    assert run["returned"]["move.teardown"] == {"stopped": []}


def test_a_failed_teardown_fails_the_run(scenarios: Scenarios) -> None:
    run = scenarios.results["teardown_fails"]
    assert run["state"] == "failed"
    assert run["tasks"]["move.transfer"] == "success"
    assert run["tasks"]["move.teardown"] == "failed"
    assert scenarios.copy_is_whole("teardown_fails")


def test_a_deferred_transfer_ends_as_one_that_is_not(scenarios: Scenarios) -> None:
    run = scenarios.results["deferred"]
    assert run["state"] == "success"
    assert scenarios.copy_is_whole("deferred")
    result = TransferResult.from_dict(run["returned"]["move.transfer"])
    assert (result.copied, result.copied_bytes) == (len(FILES), sum(FILES.values()))
    nodes = [row["node"] for row in run["returned"]["move.provision"]["gateways"]]
    assert run["returned"]["move.teardown"]["stopped"] == sorted(nodes)


def test_a_deferred_transfer_that_fails_is_torn_down_and_fails_the_run(
    scenarios: Scenarios,
) -> None:
    run = scenarios.results["deferred_fails"]
    assert run["state"] == "failed"
    assert run["tasks"]["move.transfer"] == "failed"
    assert run["tasks"]["move.teardown"] == "success"
    left = TransferResult.from_dict(run["failed_transfer"]["move.transfer"])
    assert left.failed > 0


def test_a_deferred_one_task_transfer_ends_its_gateways(scenarios: Scenarios) -> None:
    run = scenarios.results["deferred_one_task"]
    assert run["state"] == "success"
    assert scenarios.copy_is_whole("deferred_one_task")
    result = TransferResult.from_dict(run["returned"]["copy"])
    assert (result.gateways, result.copied) == ("local", len(FILES))


def test_one_task_does_all(scenarios: Scenarios) -> None:
    run = scenarios.results["one_task"]
    assert run["state"] == "success"
    assert scenarios.copy_is_whole("one_task")
    assert run["returned"]["copy"]["gateways"] == "in-process"
    result = run["returned"]["copy"]
    assert pq.read_table(result["manifest_uri"].removeprefix("file://")).num_rows == len(FILES)


@pytest.mark.skipif(
    version("apache-airflow").startswith("2."), reason="dag.test() of Airflow 2 records no events"
)
def test_the_assets_event_has_the_facts(scenarios: Scenarios) -> None:
    result = scenarios.results["one_task"]["returned"]["copy"]
    facts = scenarios.results["assets"]["x-scenario://copies/one_task"]
    assert facts["bytes"] == sum(FILES.values())
    assert facts["outputs"][0]["uri"] == f"file://{scenarios.destination}/one_task/"
    assert facts["transfer_key"] == result["transfer_key"]


def test_a_transfer_that_is_told_to_end_is_torn_down_by_its_own_task(scenarios: Scenarios) -> None:
    run = scenarios.results["killed"]
    assert run["state"] == "failed"
    assert run["tasks"]["move.transfer"] == "failed"
    assert run["tasks"]["move.teardown"] == "success"
    assert len(run["returned"]["move.teardown"]["stopped"]) >= 2


def test_a_group_on_instances_of_three_clouds(scenarios: Scenarios) -> None:
    """The connection alone says where; no file and no other argument does."""
    run = scenarios.results["on_clouds"]
    assert run["state"] == "success", run["tasks"]
    assert scenarios.copy_is_whole("on_clouds")
    fleet = Fleet.from_dict(run["returned"]["move.provision"])
    ends = {"aws:ap-southeast-2", "gcp:europe-west1"}
    relays = {gateway.region for gateway in fleet.gateways} - ends
    assert relays
    assert all(region.startswith("azure:") for region in relays)
    result = TransferResult.from_dict(run["returned"]["move.transfer"])
    assert (result.gateways, result.encrypted) == ("cloud", True)
    assert len(run["returned"]["move.teardown"]["stopped"]) == len(fleet.gateways)


def test_a_transfer_on_instances_that_is_told_to_end_leaves_nothing(scenarios: Scenarios) -> None:
    """Catalogue of faults, 36: Airflow sends SIGTERM to a task that is marked failed or cleared."""
    run = scenarios.results["killed_on_clouds"]
    assert run["state"] == "failed"
    assert run["tasks"]["move.transfer"] == "failed"
    assert run["tasks"]["move.teardown"] == "success"
    assert len(run["returned"]["move.teardown"]["stopped"]) >= 2
    # Objects that had arrived before stay; neither parts nor a journal do.
    there = scenarios.destination / "killed_on_clouds"
    for path in (path for path in there.rglob("*") if path.is_file()):
        key = str(path.relative_to(there))
        assert key in FILES
        assert path.read_bytes() == (scenarios.source / key).read_bytes()


def test_clouds_have_nothing_at_the_end_and_no_secret_was_logged(scenarios: Scenarios) -> None:
    assert scenarios.left_on_clouds == {"aws": {}, "gcp": {}, "azure": {}, "machines": []}
    for secret in (FLEET_SECRET, AWS_SECRET):
        assert secret not in scenarios.log


@pytest.mark.parametrize(
    ("task", "kinds", "copied"),
    [
        ("all_good.move.transfer", ["START", "COMPLETE"], len(FILES)),
        ("transfer_fails.move.transfer", ["START", "FAIL"], len(FILES) - 2),
        ("one_task.copy", ["START", "COMPLETE"], len(FILES)),
        ("deferred_one_task.copy", ["START", "START", "COMPLETE"], len(FILES)),
    ],
)
def test_openlineage_has_both_ends_and_what_was_copied(
    scenarios: Scenarios, task: str, kinds: list[str], copied: int
) -> None:
    events = [event for event in scenarios.events if event["job"]["name"] == task]
    assert [event["eventType"] for event in events][: len(kinds)] == kinds
    end = events[len(kinds) - 1]
    assert (len(end["inputs"]), len(end["outputs"])) == (1, 1)
    assert end["inputs"][0]["namespace"] == "file"
    assert end["outputs"][0]["name"].endswith(task.partition(".")[0])
    assert end["outputs"][0]["outputFacets"]["outputStatistics"]["fileCount"] == copied
    assert end["run"]["facets"]["skyplane"]["achieved"]["objects"] == copied
    assert ("errorMessage" in end["run"]["facets"]) == (kinds[-1] == "FAIL")


def metrics_of(scenarios: Scenarios, dag_id: str) -> dict[str, Metric]:
    prefix = "airflow.skyplane.transfer."
    found = [each for each in scenarios.metrics if each.tags["dag_id"] == dag_id]
    return {each.name.removeprefix(prefix): each for each in found}


def test_a_transfer_emits_metrics(scenarios: Scenarios) -> None:
    found = metrics_of(scenarios, "on_clouds")
    result = TransferResult.from_dict(scenarios.results["on_clouds"]["returned"]["move.transfer"])
    values = {name: (each.kind, each.value) for name, each in found.items()}
    assert values == {
        "bytes": ("c", sum(FILES.values())),
        "objects": ("c", len(FILES)),
        "failed_objects": ("c", 0),
        "seconds": ("ms", pytest.approx(result.this_try.seconds * 1000, abs=1)),
        "goodput_gbps": ("g", pytest.approx(result.goodput_gbps)),
        "cost_usd": ("g", pytest.approx(result.cost.total_usd)),
        "planned_cost_usd": ("g", pytest.approx(result.estimated_usd)),
    }
    assert found["bytes"].tags == {
        "dag_id": "on_clouds",
        "task_id": "move.transfer",
        "src": "aws.ap-southeast-2",
        "dst": "gcp.europe-west1",
        "state": "succeeded",
    }


def test_a_failed_transfer_emits_metrics_too(scenarios: Scenarios) -> None:
    found = metrics_of(scenarios, "transfer_fails")
    left = scenarios.results["transfer_fails"]["failed_transfer"]["move.transfer"]
    assert found["failed_objects"].value == left["failed"] > 0
    assert (found["bytes"].tags["state"], found["bytes"].tags["dst"]) == ("failed", "aws.eu-west-3")


def test_a_page_needs_the_right_to_read_the_xcoms_of_the_dag(scenarios: Scenarios) -> None:
    """A browser without a login is refused, or led to the login page by Airflow 2."""
    for name, page in scenarios.results["pages"].items():
        seen = {who: page[who]["status"] for who in page if who not in ("links", "behind")}
        exists = page["reader"]["status"]
        if version("apache-airflow").startswith("2."):
            assert seen == {"nobody": 302, "stranger": 403, "reader": exists}, name
            assert page["nobody"]["headers"]["location"].startswith("/data/login/"), name
        else:
            refused = {"nobody": 401, "stranger": 403}
            assert seen == {**refused, "program": exists, "reader": exists}, name
        for who in ("nobody", "stranger"):
            assert "local:this-machine" not in page[who]["text"]


@pytest.mark.parametrize(
    ("task", "titles"),
    [
        ("all_good.move.plan", {"Plan"}),
        ("on_clouds.move.provision", {"Plan", "Cloud console"}),
        ("all_good.move.provision", {"Plan"}),
        ("all_good.move.transfer", {"Transfer", "Lineage"}),
        ("transfer_fails.move.transfer", {"Transfer", "Lineage"}),
        ("deferred.move.transfer", {"Transfer", "Lineage"}),
        ("one_task.copy", {"Transfer", "Lineage"}),
        ("provision_fails.move.provision", set()),
        ("all_good.move.teardown", set()),
    ],
)
def test_links_lead_to_pages_of_this_airflow(
    scenarios: Scenarios, task: str, titles: set[str]
) -> None:
    page = scenarios.results["pages"][task]
    assert {title for title, url in page["links"].items() if url} == titles
    for title in titles:
        assert page["links"][title].startswith("http://airflow.test/data/skyplane/")
        assert page["behind"][title]["status"] == 200
    assert (page["reader"]["status"] == 200) == bool(titles)


def test_the_page_of_a_plan_has_the_overlay(scenarios: Scenarios) -> None:
    page = scenarios.results["pages"]["on_clouds.move.plan"]["reader"]["text"]
    assert "<svg" in page
    assert "aws:ap-southeast-2 to gcp:europe-west1" in page


def test_the_page_of_a_fleet_has_a_console_for_each_cloud(scenarios: Scenarios) -> None:
    page = scenarios.results["pages"]["on_clouds.move.provision"]
    fleet = Fleet.from_dict(scenarios.results["on_clouds"]["returned"]["move.provision"])
    assert page["links"]["Cloud console"].endswith("#fleet")
    # The portal of a Resource Manager other than Azure's own is not known.
    assert set(fleet.console_urls) == {"aws:ap-southeast-2", "gcp:europe-west1"}
    for url in fleet.console_urls.values():
        assert f'href="{url}"' in page["reader"]["text"]


def test_the_page_of_a_failed_transfer_names_its_objects(scenarios: Scenarios) -> None:
    page = scenarios.results["pages"]["transfer_fails.move.transfer"]["reader"]["text"]
    left = scenarios.results["transfer_fails"]["failed_transfer"]["move.transfer"]
    for failure in left["failures"]:
        assert failure["source"] in page
    assert left["resume_handle"]
    assert left["resume_handle"] not in page


def test_the_lineage_is_the_facts(scenarios: Scenarios) -> None:
    facts = scenarios.results["pages"]["all_good.move.transfer"]["behind"]["Lineage"]["json"]
    assert (facts["state"], facts["bytes"]) == ("succeeded", sum(FILES.values()))
    assert facts["outputs"][0]["uri"] == f"file://{scenarios.destination}/all_good/"


def test_no_page_can_run_a_script(scenarios: Scenarios) -> None:
    headers = scenarios.results["pages"]["all_good.move.transfer"]["reader"]["headers"]
    assert headers["content-security-policy"].startswith("default-src 'none'; style-src")
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("task", "kinds", "place"),
    [
        ("copies", ["START", "COMPLETE"], "hook"),
        ("fails", ["START", "FAIL"], "hook_fails"),
    ],
)
def test_a_task_that_uses_the_hook_has_both_ends_in_its_lineage(
    scenarios: Scenarios, task: str, kinds: list[str], place: str
) -> None:
    events = [event for event in scenarios.events if event["job"]["name"] == f"hook.{task}"]
    assert [event["eventType"] for event in events] == kinds
    read, written = (
        {(end["namespace"], end["name"]) for end in events[-1][side]}
        for side in ("inputs", "outputs")
    )
    assert read == {("file", str(scenarios.source))}
    # Here all tasks run in one process, whose collector keeps what earlier tasks have written.
    assert ("file", str(scenarios.destination / place)) in written
    assert scenarios.copy_is_whole("hook")


def test_a_deferred_task_starts_its_fleet_when_another_one_has_ended(scenarios: Scenarios) -> None:
    run = scenarios.results["second_fleet"]
    assert run["state"] == "success", run["tasks"]
    assert len(run["returned"]["first"]["gateways"]) == 2
    assert run["returned"]["second"]["copied"] == len(FILES)
    # Nothing but the pause of the second task ends the first fleet before its teardown.
    assert run["returned"]["teardown"] == {"stopped": []}


def test_a_flag_that_is_rendered_or_mapped_to_false_deletes_nothing(scenarios: Scenarios) -> None:
    run = scenarios.results["flags"]
    assert run["tasks"] == {"template": "success", "mapped[0]": "success", "wrong": "failed"}
    assert all((scenarios.source / key).exists() for key in FILES)
    assert scenarios.copy_is_whole("flags/mapped")
    # The list that the template has rendered to left one file out.
    copied = {key for key in FILES if (scenarios.destination / "flags" / "template" / key).exists()}
    assert copied == FILES.keys() - {"sub/b + c.txt"}
    assert not (scenarios.destination / "flags" / "wrong").exists()
    assert "move must be true or false, not 'truee'" in scenarios.log
