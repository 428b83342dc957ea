"""Transfers through real gateways in Pods of a real API server, and what a dead worker leaves."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from tests.clouds.fakes import open_ec2
from tests.clouds.gateways import GATEWAY
from tests.e2e.conftest import (
    DESTINATION_REGION,
    SOURCE_REGION,
    S3Server,
    filled,
    serving,
    words_of,
)
from tests.faults.go_programs import Unavailable
from tests.provision.kubernetes.balancers import balancers
from tests.provision.kubernetes.cluster import USER, Cluster, wait_until
from tests.provision.kubernetes.harness import IMAGE, KubernetesHarness, shared_cluster
from tests.provision.kubernetes.kubelet import Kubelet
from tests.provision.kubernetes.pods import (
    BALANCERS,
    HOST,
    MACHINES,
    POD_CIDR,
    ProcessPods,
    process_pods,
)

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.provision.fleet.software import write_bundle
from skyplane_orchestration.transfer import probe
from strict_clouds.ec2 import StrictEc2
from strict_clouds.firewall import Firewall
from strict_clouds.world import World

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

_KILLS: Final = 10
_LONGEST_S: Final = 14.0
RELAY_REGION: Final = "aws:us-east-1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    try:
        with shared_cluster() as made:
            yield made
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def pods() -> Iterator[ProcessPods]:
    try:
        with process_pods() as made:
            yield made
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def site(cluster: Cluster, pods: ProcessPods) -> Iterator[KubernetesHarness]:
    """A cluster whose Pods run gateways, and are gone after the test."""
    with ExitStack() as stack:
        kubelet = Kubelet(cluster, pods, cluster.folder)
        kubelet.start()
        stack.callback(kubelet.stop)
        harness = KubernetesHarness(cluster, kubelet)
        stack.callback(harness.clear)
        yield harness


@pytest.fixture(scope="module")
def ends(
    pods: ProcessPods, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[S3Server, S3Server]]:
    """Servers that Pods reach."""
    one, other = (tmp_path_factory.mktemp(end) for end in ("source", "destination"))
    with (
        serving(SOURCE_REGION, one, HOST) as source,
        serving(DESTINATION_REGION, other, HOST) as destination,
    ):
        yield source, destination


@pytest.fixture
def clouds_file(site: KubernetesHarness, tmp_path: Path) -> Path:
    regions = {
        SOURCE_REGION: {"context": USER, "namespace": "virginia", "cpu": 1, "memory_gib": 1},
        DESTINATION_REGION: {"context": USER, "namespace": "paris", "cpu": 1, "memory_gib": 1},
    }
    kubeconfig = str(site.cluster.kubeconfig)
    document = {
        "image": IMAGE,
        "poll_s": 0.2,
        "kubernetes": {"kubeconfig": kubeconfig, "regions": regions},
    }
    path = tmp_path / "clouds.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def choice(clouds_file: Path, provisioner: str = "kubernetes") -> list[str]:
    words = ["--provisioner", provisioner, "--clouds", str(clouds_file)]
    return [*words, "--deployment", "tests"]


def test_a_copy_through_two_pods_is_encrypted_and_leaves_nothing(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    clouds_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = ends
    command = ["cp", "-r", *words_of(filled(ends, "pods")), *choice(clouds_file)]
    command += ["--gateways", "always", "--instance-limit", "1", "--probe", "never"]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert (report["objects"], report["encrypted"]) == (3, True)
    assert destination.objects("pods", "q/") == source.objects("pods", "p/")
    assert len(site.kubelet.seen) == 2
    assert site.leftovers() == {}


def test_pods_whose_image_has_no_gateway_get_it_from_the_worker(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    clouds_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A bundle has the requirements too, so that Pods need no package index."""
    source, destination = ends
    bundle = tmp_path / "bundle.zip"
    write_bundle(bundle, (f"{sys.version_info[0]}.{sys.version_info[1]}",))
    document = yaml.safe_load(clouds_file.read_text())
    document["kubernetes"]["python_image"] = document.pop("image")
    clouds_file.write_text(yaml.safe_dump(document | {"bundle": str(bundle)}))
    command = ["cp", "-r", *words_of(filled(ends, "pushed")), *choice(clouds_file)]
    command += ["--gateways", "always", "--instance-limit", "1", "--probe", "never"]
    assert main(command) == 0, capsys.readouterr().err
    assert destination.objects("pushed", "q/") == source.objects("pushed", "p/")
    assert site.leftovers() == {}


@pytest.fixture
def ec2(pods: ProcessPods, tmp_path: Path) -> Iterator[tuple[StrictEc2, World]]:
    """A cloud whose machines Pods reach, but not the other way round."""
    folder = tmp_path / "machines"
    for number in range(2, 255):
        closed = folder / f"{POD_CIDR.rpartition('.')[0]}.{number}"
        closed.mkdir(parents=True)
        Firewall(closed).allow(())
    with (
        World(folder, GATEWAY, MACHINES) as world,
        open_ec2(world, deployments=("tests",)) as made,
    ):
        made.conditions.opt_in[SOURCE_REGION.partition(":")[2]] = "opt-in-not-required"
        yield made, world


PODS, INSTANCES = "pods", "instances"


@pytest.mark.parametrize(
    ("senders", "receivers"), [(PODS, INSTANCES), (INSTANCES, PODS), (PODS, PODS)]
)
def test_a_copy_between_networks_dials_outward_or_a_load_balancer(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    ec2: tuple[StrictEc2, World],
    clouds_file: Path,
    capsys: pytest.CaptureFixture[str],
    senders: str,
    receivers: str,
) -> None:
    source, destination = ends
    cloud, world = ec2
    document = yaml.safe_load(clouds_file.read_text())
    places = document["kubernetes"]["regions"]
    for region, kind in ((SOURCE_REGION, senders), (DESTINATION_REGION, receivers)):
        places[region] |= {"egress_cidrs": [POD_CIDR], "network": region.replace(":", "-")}
        if kind == INSTANCES:
            del places[region]
            document["aws"] = {"endpoint_url": cloud.url, "regions": [region]}
    document["control_cidrs"] = [f"{HOST}/32"]
    callers = POD_CIDR if senders == PODS else MACHINES
    if receivers == PODS:
        balanced = {"load_balancer": True, "load_balancer_sources": [callers]}
        places[DESTINATION_REGION] |= balanced
    clouds_file.write_text(yaml.safe_dump(document))
    bucket = f"{senders}-to-{receivers}"
    command = ["cp", "-r", *words_of(filled(ends, bucket)), *choice(clouds_file, "cloud")]
    command += ["--gateways", "always", "--instance-limit", "1", "--probe", "never", "--json"]
    with balancers(site.cluster, BALANCERS) as made:
        assert main(command) == 0, capsys.readouterr().err
        # Nothing that is billed outlives the command.
        assert "services" not in site.left()
    report = json.loads(capsys.readouterr().out)
    assert (report["objects"], report["encrypted"]) == (3, True)
    assert destination.objects(bucket, "q/") == source.objects(bucket, "p/")
    assert len(site.kubelet.seen) == [senders, receivers].count(PODS)
    assert len(world.machines) == [senders, receivers].count(INSTANCES)
    assert (bool(made.callers), made.refused) == (receivers == PODS, set())
    for machine in world.machines:
        assert {rule.source_cidr for rule in machine.firewall.rules} == (
            {f"{HOST}/32", POD_CIDR} if receivers == INSTANCES else {f"{HOST}/32"}
        )
    assert site.leftovers() == {}
    assert not any(machine.is_running for machine in world.machines)
    assert not any(cloud.leftovers().values())


def test_a_relay_that_admits_nobody_dials_also_for_a_probe(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    ec2: tuple[StrictEc2, World],
    clouds_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(probe, "PROBE_S", 0.3)
    source, destination = ends
    document = yaml.safe_load(clouds_file.read_text())
    place = document["kubernetes"]["regions"].popitem()[1] | {"egress_cidrs": [POD_CIDR]}
    document["kubernetes"]["regions"] = {RELAY_REGION: place}
    regions = [SOURCE_REGION, DESTINATION_REGION]
    document["aws"] = {"endpoint_url": ec2[0].url, "regions": regions}
    clouds_file.write_text(yaml.safe_dump(document | {"control_cidrs": [f"{HOST}/32"]}))
    command = ["cp", "-r", *words_of(filled(ends, "relayed")), *choice(clouds_file, "cloud")]
    # No direct path has that rate.
    command += ["--min-throughput-gbps", "3", "--allow-regions", RELAY_REGION]
    command += ["--gateways", "always", "--instance-limit", "1", "--probe", "always", "--json"]
    assert main(command) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert len(report["measured"]) == 3
    assert destination.objects("relayed", "q/") == source.objects("relayed", "p/")
    assert len(site.kubelet.seen) == 1
    assert site.leftovers() == {}
    assert not any(ec2[0].leftovers().values())


def test_a_worker_that_is_told_to_end_takes_its_pods_along(
    kit: ClientKit, ends: tuple[S3Server, S3Server], site: KubernetesHarness, clouds_file: Path
) -> None:
    words = [*words_of(filled(ends, "told")), *choice(clouds_file), "--probe", "never"]
    command = [sys.executable, "-m", "skyplane_orchestration.cli", "cp", "-r", *words]
    command += ["--gateways", "always", "--instance-limit", "1"]
    with subprocess.Popen(
        command, env=kit.home.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as worker:
        wait_until(lambda: len(site.kubelet.running()) == 2, "Pods that run")
        worker.terminate()
        assert worker.wait(120) != 0
    assert site.leftovers() == {}


#: Airflow knows DAGs of its folder only.
_DAG: Final = """
import json, os
from airflow.providers.common.compat.sdk import DAG
from skyplane_orchestration.operators import skyplane_transfer_group

with DAG(dag_id="pods", schedule=None, catchup=False) as dag:
    skyplane_transfer_group("move", **json.loads(os.environ["POD_GROUP"]))
"""
_RUN: Final = """
import runpy, sys
from airflow.utils.db import initdb

initdb()
run = runpy.run_path(sys.argv[1])["dag"].test()
print({one.task_id: str(one.state) for one in run.get_task_instances()})
sys.exit(str(run.state) != "success")
"""


def test_the_group_of_airflow_copies_through_pods(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    clouds_file: Path,
    tmp_path: Path,
) -> None:
    source, destination = ends
    job = filled(ends, "group")
    words = {
        **{"source_url": job.source.url, "destination_url": job.destination.url},
        **{"source_region": job.source.region, "destination_region": job.destination.region},
        "source_endpoint": job.source.endpoint_url,
        "destination_endpoint": job.destination.endpoint_url,
        **{"probe": "never", "instance_limit": 1, "skyplane_conn_id": "pods"},
    }
    clouds = yaml.safe_load(clouds_file.read_text())
    extra = {"provisioner": "kubernetes", "deployment": "tests", "clouds": clouds}
    secret = kit.secret.value.decode()
    connection = {"conn_type": "skyplane", "password": secret, "extra": extra}
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "pods.py").write_text(_DAG)
    environment = {
        **kit.home.environment,
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "POD_GROUP": json.dumps(words),
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_PODS": json.dumps(connection),
    }
    command = [sys.executable, "-c", _RUN, str(dags / "pods.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    assert destination.objects("group", "q/") == source.objects("group", "p/")
    assert site.leftovers() == {}
    assert len(site.kubelet.seen) == 2


def test_nothing_is_left_after_a_worker_is_killed_at_any_moment(
    kit: ClientKit,
    ends: tuple[S3Server, S3Server],
    site: KubernetesHarness,
    clouds_file: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A sweep finds what a run of the command leaves that cannot clean up."""
    moments = random.Random(34)
    words = [*words_of(filled(ends, "kills")), *choice(clouds_file), "--probe", "never"]
    command = [sys.executable, "-m", "skyplane_orchestration.cli", "cp", "-r", *words]
    command += ["--gateways", "always", "--instance-limit", "1"]
    found: list[dict[str, list[str]]] = []
    for _ in range(_KILLS):
        with subprocess.Popen(
            command,
            env=kit.home.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as worker:
            time.sleep(moments.uniform(2.0, _LONGEST_S))
            os.killpg(worker.pid, signal.SIGKILL)
        found.append(site.left())
        sweep = ["sweep", *choice(clouds_file), "--older-than-s", "0"]
        assert main(sweep) == 0, capsys.readouterr()
        assert site.leftovers() == {}
    # The moments are of use.
    assert len({tuple(sorted(kinds)) for kinds in found}) > 1
