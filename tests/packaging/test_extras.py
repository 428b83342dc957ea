"""Each extra is enough for what the README says of it, with the wheel and no other package.

All else ends with one line that names the extra to install.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3
import pytest
from tests.clouds.fakes import open_gce
from tests.clouds.gateways import IMAGE
from tests.faults import moto_server
from tests.packaging.environments import (
    make_environment_with_extra,
)
from tests.ports import free_port

from strict_clouds.gce import PROJECT

PLAN = """
from skyplane_orchestration import Client, Location, MinimizeCost, TransferJob
job = TransferJob(
    Location("s3://a/x/", region="aws:ap-southeast-2"),
    Location("s3://b/x/", region="aws:eu-west-3"),
    MinimizeCost(min_throughput_gbps=2),
    volume_gb=70,
)
assert Client().plan(job).throughput_gbps >= 2
"""
OPERATORS = """
from airflow.providers.common.compat.sdk import DAG
from skyplane_orchestration.hooks.skyplane import SkyplaneHook
from skyplane_orchestration.operators import (
    SkyplanePlanOperator, SkyplaneProvisionOperator, SkyplaneSweepOperator,
    SkyplaneTeardownOperator, SkyplaneTransferOperator, skyplane_transfer_group,
)
with DAG("one", schedule=None) as dag:
    skyplane_transfer_group(
        source_url="s3://a/x/", source_region="aws:ap-southeast-2",
        destination_url="s3://b/x/", destination_region="aws:eu-west-3",
        min_throughput_gbps=2,
    )
assert len(dag.tasks) >= 4, dag.tasks
"""
ASSETS = """
import dagster as dg
from skyplane_orchestration import MinimizeCost
from skyplane_orchestration.dagster import (
    SkyplaneResource, build_skyplane_sweep_sensor, build_skyplane_transfer_asset,
)
asset = build_skyplane_transfer_asset(
    "copied", source="s3://a/x/", destination="s3://b/x/", objective=MinimizeCost(2)
)
dg.Definitions.validate_loadable(
    dg.Definitions(assets=[asset], resources={"skyplane": SkyplaneResource()})
)
"""

IMPORTS = """
from importlib import import_module
from skyplane_orchestration.errors import MissingExtra
for name in ("operators", "hooks", "dagster"):
    try:
        import_module(f"skyplane_orchestration.{name}")
    except MissingExtra as error:
        print(error)
"""

DRAWN = ("frontier", "aws:ap-southeast-2", "aws:eu-west-3", "--points", "2", "--plot", "chart.svg")

#: Check of the doctor -> the extra that it is about.
EXTRAS_BY_CHECK = {
    "gateway": "gateway",
    "extra aws": "aws",
    "extra gcs": "gcs",
    "extra gcp": "gcp",
    "extra airflow": "airflow",
    "extra dagster": "dagster",
    "extra plots": "plots",
    "extra kubernetes": "kubernetes",
    "extra ssh": "ssh",
}


@dataclass(frozen=True)
class Installed:
    """The wheel with one extra, in an environment and a home of its own."""

    python: Path
    home: Path

    def command(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self._run([self.python.with_name("skyplane-orch"), *arguments], variables)

    def code(self, text: str) -> subprocess.CompletedProcess[str]:
        # -I: neither the current folder nor PYTHONPATH may lend a module.
        return self._run([self.python, "-I", "-c", text], {})

    def _run(
        self, command: list[str | Path], variables: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home / "run"),
            "AIRFLOW_HOME": str(self.home / "airflow"),
            "DAGSTER_HOME": str(self.home),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            **variables,
        }
        return subprocess.run(
            command, cwd=self.home, env=environment, capture_output=True, text=True, check=False
        )


#: An extra's name ("" for none) -> the wheel with it.
WithExtra = Callable[[str], Installed]


@pytest.fixture(scope="module")
def with_extra(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> WithExtra:
    made: dict[str, Installed] = {}

    def make(extra: str) -> Installed:
        if extra not in made:
            folder = tmp_path_factory.mktemp(extra or "base")
            python = make_environment_with_extra(folder, wheel, extra)
            home = folder / "home"
            (home / "run").mkdir(parents=True, mode=0o700)
            made[extra] = Installed(python, home)
        return made[extra]

    return make


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    with moto_server.running() as url:
        yield url


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def assert_names(extra: str, done: subprocess.CompletedProcess[str]) -> None:
    """Refused in one line that names the extra; ends and plan may have been told before."""
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "Traceback" not in done.stderr
    (line,) = (text for text in done.stderr.splitlines() if text.startswith("skyplane-orch: "))
    assert line.endswith(f"pip install 'skyplane-orchestration[{extra}]'")


@pytest.mark.long
@pytest.mark.parametrize(
    ("extra", "code"), [("", PLAN), ("airflow", OPERATORS), ("dagster", ASSETS)]
)
def test_base_plans_and_an_orchestrators_extra_defines_tasks(
    with_extra: WithExtra, extra: str, code: str
) -> None:
    succeeded(with_extra(extra).code(code))


@pytest.mark.long
def test_the_doctor_of_base_names_what_is_missing(with_extra: WithExtra) -> None:
    report = json.loads(succeeded(with_extra("").command("doctor", "--json")))
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["solver"]["state"] == "ok"
    for name, extra in EXTRAS_BY_CHECK.items():
        assert checks[name]["state"] == "warn"
        assert f"pip install 'skyplane-orchestration[{extra}]'" in checks[name]["detail"]


@pytest.mark.long
def test_base_names_the_extra_of_what_it_cannot_do(with_extra: WithExtra) -> None:
    base = with_extra("")
    (base.home / "here.txt").write_text("here")
    assert_names("gateway", base.command("cp", "here.txt", "there.txt"))
    assert_names("aws", base.command("cp", "here.txt", "s3://bucket/key"))
    assert_names("aws", base.command("sweep", "--destination", "s3://bucket/"))
    assert_names("gcs", base.command("sweep", "--destination", "gs://bucket/"))
    assert_names("plots", base.command(*DRAWN))
    assert not (base.home / "chart.svg").exists()
    assert not (base.home / "there.txt").exists()
    succeeded(base.command("verify", "here.txt", "here.txt"))
    lines = succeeded(base.code(IMPORTS)).splitlines()
    for line, extra in zip(lines, ("airflow", "airflow", "dagster"), strict=True):
        assert line.endswith(f"pip install 'skyplane-orchestration[{extra}]'")


@pytest.mark.long
def test_aws_plans_copies_verifies_and_sweeps_buckets(
    with_extra: WithExtra, s3_endpoint: str
) -> None:
    identity = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    s3 = boto3.client(
        "s3",
        endpoint_url=s3_endpoint,
        region_name="us-east-1",
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )
    s3.create_bucket(Bucket="bucket")
    for key in ("a/one", "b/one"):
        s3.put_object(Bucket="bucket", Key=key, Body=b"one")
    variables = {**identity, "AWS_ENDPOINT_URL_S3": s3_endpoint}
    aws = with_extra("aws")
    ends = ("s3://bucket/a/", "s3://bucket/b/")
    regions = ("--src-region", "aws:us-east-1", "--dst-region", "aws:eu-west-1")
    plan = json.loads(succeeded(aws.command("plan", *ends, *regions, "--json", **variables)))
    assert plan["volume_gb"] == 3e-9
    succeeded(aws.command("verify", "-r", *ends, **variables))
    succeeded(aws.command("sweep", "--destination", "s3://bucket/", **variables))
    succeeded(aws.command("cp", "-r", *ends, *regions, **variables))


@pytest.mark.long
def test_gateway_copies_files(with_extra: WithExtra) -> None:
    installed = with_extra("gateway")
    (installed.home / "here.txt").write_text("here")
    succeeded(installed.command("cp", "here.txt", "there.txt"))
    assert (installed.home / "there.txt").read_text() == "here"
    assert_names("aws", installed.command("cp", "here.txt", "s3://bucket/key"))


@pytest.mark.long
def test_plots_draws_frontiers(with_extra: WithExtra) -> None:
    installed = with_extra("plots")
    succeeded(installed.command(*DRAWN))
    assert "USD per GB" in (installed.home / "chart.svg").read_text()


@pytest.mark.long
def test_ssh_dials_hosts(with_extra: WithExtra) -> None:
    port = free_port()
    sweep = ("sweep", "--provisioner", "ssh", "--hosts", "hosts.yaml")
    for extra in ("", "ssh"):
        installed = with_extra(extra)
        hosts = f"local:rack: [{{address: 127.0.0.1, port: {port}}}]"
        (installed.home / "hosts.yaml").write_text(hosts)
        done = installed.command(*sweep)
        if extra:
            assert f"host 127.0.0.1:{port} cannot be reached over ssh" in done.stdout
        else:
            assert_names("ssh", done)


@pytest.mark.long
def test_gcp_finds_fleets(with_extra: WithExtra) -> None:
    sweep = ("sweep", "--provisioner", "cloud", "--clouds", "clouds.yaml", "--deployment", "here")
    with open_gce() as gce:
        for extra in ("", "gcp"):
            installed = with_extra(extra)
            clouds = {
                "image": IMAGE.image,
                "control_cidrs": ["127.0.0.1/32"],
                "gcp": {"project": PROJECT, "endpoint_url": gce.url, "credential_ref": "env:HERE"},
            }
            (installed.home / "clouds.yaml").write_text(json.dumps(clouds))
            done = installed.command(*sweep, HERE_ACCESS_TOKEN="token")
            if extra:
                succeeded(done)
            else:
                assert_names("gcp", done)
        assert {call.token for call in gce.calls} == {"token"}
        assert "instances.aggregatedList" in gce.methods()


def test_readme_says_what_each_extra_promises(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    (said,) = re.findall(r"^\| extra .*?\n\n", (repository / "README.md").read_text(), re.S | re.M)
    cells = re.findall(r"^\| (`.*?) \|", said, re.M)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    assert named == [name for name in project["optional-dependencies"] if name != "dev"]
