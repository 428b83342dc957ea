"""A transfer through real gateways on hosts that are reached over ssh."""

from __future__ import annotations

import json
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.conftest import filled, words_of
from tests.e2e.processes import processes_with
from tests.provision import ssh_server

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner

if TYPE_CHECKING:
    from tests.e2e.conftest import ClientKit, S3Server

pytestmark = pytest.mark.e2e

#: Brings up a fleet that waits 2 s for its transfer, and says so.
ORCHESTRATOR = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from tests.provision.samples import expire_leases
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
    import json

    client = Client(
        identity=RunIdentity("tests", "dag", "gone"),
        provisioner=SshProvisioner(SshOptions.from_file(Path(sys.argv[1]))),
    )
    fleet = client.provision(TransferPlan.from_dict(json.loads(sys.stdin.read())))
    # Not `start_within_s`: a fleet whose bring-up takes longer than that never comes up.
    expire_leases(fleet, client.authority(fleet.key), after_s=6.0)
    print("up", flush=True)
    time.sleep(600)
    """
)


@pytest.fixture(scope="module")
def sshd() -> Iterator[ssh_server.Server]:
    with ssh_server.running_or_skip() as server:
        yield server


@pytest.fixture
def folder(sshd: ssh_server.Server) -> Path:
    return sshd.make_folder()


@pytest.fixture
def hosts_file(sshd: ssh_server.Server, folder: Path, kit: ClientKit, tmp_path: Path) -> Path:
    """Source and destination have a host each."""
    document: dict[str, list[dict[str, Any]]] = {}
    for number, region in enumerate((kit.SOURCE, kit.SINK)):
        host = sshd.host(number, folder)
        names = ("address", "port", "user", "key_file", "host_key", "python", "directory")
        document[region] = [{name: getattr(host, name) for name in names}]
    path = tmp_path / "hosts.yaml"
    path.write_text(json.dumps(document))
    return path


def test_a_copy_between_two_hosts_is_encrypted_and_leaves_nothing(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    hosts_file: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    choice = ["--provisioner", "ssh", "--hosts", str(hosts_file)]
    command = ["cp", "-r", *words_of(filled(servers, "hosts")), *choice]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["objects"] == 3, report
    assert report["encrypted"] is True
    wanted = source.objects("hosts", "p/")
    assert destination.objects("hosts", "q/") == wanted
    assert list(folder.iterdir()) == []
    assert processes_with(str(folder)) == []
    assert main(["doctor", *choice, "--json"]) == 0, capsys.readouterr().out
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["state"] for check in checks if check["name"].startswith("host ")] == ["ok"] * 2
    assert list(folder.iterdir()) == []


def _why_no_registry() -> str:
    """What pip of the system's Python says where it finds no package; empty if it finds one."""
    with tempfile.TemporaryDirectory() as folder:
        look = ["-m", "pip", "download", "--no-deps", "--quiet", "--dest", folder, "tenacity"]
        made = subprocess.run(
            ["/usr/bin/python3", "-m", "venv", f"{folder}/own"], capture_output=True, check=False
        )
        if made.returncode:
            return made.stdout.decode().strip()[-300:]
        done = subprocess.run(
            [f"{folder}/own/bin/python", *look], capture_output=True, text=True, check=False
        )
    return done.stderr.strip()[-300:] if done.returncode else ""


@pytest.mark.long
def test_a_bare_machine_gets_an_environment_once(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    hosts_file: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The hosts' `python3` has none of the gateway's requirements."""
    if why := _why_no_registry():
        pytest.skip(f"no package index is reached here: {why}")
    destination, job = servers[1], filled(servers, "bare")
    document = json.loads(hosts_file.read_text())
    for hosts in document.values():
        del hosts[0]["python"]
    hosts_file.write_text(json.dumps(document))
    choice = ["--provisioner", "ssh", "--hosts", str(hosts_file)]
    assert main(["doctor", *choice]) == 0, capsys.readouterr().out
    made = []
    for name in ("q", "r"):
        target = replace(job.destination, url=f"s3://bare/{name}/")
        command = ["cp", "-r", *words_of(replace(job, destination=target)), *choice]
        assert main([*command, "--gateways", "always"]) == 0, capsys.readouterr().err
        assert list(destination.objects("bare", f"{name}/")) == ["a/b", "empty", "large"]
        assert processes_with(str(folder)) == []
        assert sorted(path.name for path in folder.iterdir()) == ["host-0-python", "host-1-python"]
        made.append(sorted(path.stat().st_mtime_ns for path in folder.glob("*/*/complete")))
    assert made[0] == made[1]
    assert len(made[0]) == 2


def test_a_killed_orchestrator_leaves_nothing_after_the_lease(
    kit: ClientKit, hosts_file: Path, folder: Path
) -> None:
    plan = kit.plan((kit.SOURCE, kit.SINK)).to_dict()
    with kit.home.orchestrator(ORCHESTRATOR, plan, str(hosts_file)) as lines:
        assert lines.readline() == "up\n"
        assert processes_with(str(folder)) != []
    kit.home.wait_until(lambda: not processes_with(str(folder)), "the leases end")
    assert [*folder.rglob("*.pem"), *folder.rglob("config.json")] == []
    SshProvisioner(SshOptions.from_file(hosts_file)).sweep("tests")
    assert list(folder.iterdir()) == []
