"""A transfer through real gateways on hosts that are reached over ssh."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
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
    from skyplane_orchestration.client import Client, FleetTimes
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.model.plan import TransferPlan
    from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
    import json

    client = Client(
        identity=RunIdentity("tests", "dag", "gone"),
        provisioner=SshProvisioner(SshOptions.from_file(Path(sys.argv[1]))),
        times=FleetTimes(start_within_s=2.0),
    )
    client.provision(TransferPlan.from_dict(json.loads(sys.stdin.read())))
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


def processes_of(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line:
                found.append(line)
    return found


def test_a_copy_between_two_hosts_is_encrypted_and_leaves_nothing(
    kit: ClientKit,
    servers: tuple[S3Server, S3Server],
    hosts_file: Path,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, destination = servers
    for server in servers:
        server.make_bucket("hosts")
    source.fill("hosts", "p/", {"large": os.urandom(9 << 20), "a/b": b"x", "empty": b""})
    ends = []
    for side, server in (("src", source), ("dst", destination)):
        ends += [f"--{side}-region", server.region, f"--{side}-endpoint", server.endpoint]
    choice = ["--provisioner", "ssh", "--hosts", str(hosts_file)]
    command = ["cp", "s3://hosts/p/", "s3://hosts/q/", "-r", *ends, *choice]
    assert main([*command, "--json"]) == 0, capsys.readouterr().err
    report = json.loads(capsys.readouterr().out)
    assert report["objects"] == 3, report
    assert report["encrypted"] is True
    wanted = source.objects("hosts", "p/")
    assert destination.objects("hosts", "q/") == wanted
    assert list(folder.iterdir()) == []
    assert processes_of(folder) == []
    assert main(["doctor", *choice, "--json"]) == 0, capsys.readouterr().out
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["state"] for check in checks if check["name"].startswith("host ")] == ["ok"] * 2
    assert list(folder.iterdir()) == []


def test_a_killed_orchestrator_leaves_nothing_after_the_lease(
    kit: ClientKit, hosts_file: Path, folder: Path
) -> None:
    plan = kit.plan((kit.SOURCE, kit.SINK)).to_dict()
    with kit.home.orchestrator(ORCHESTRATOR, plan, str(hosts_file)) as lines:
        assert lines.readline() == "up\n"
        assert processes_of(folder) != []
    kit.home.wait_until(lambda: not processes_of(folder), "the leases end")
    assert [path.name for path in folder.glob("*/*")] == []
    SshProvisioner(SshOptions.from_file(hosts_file)).sweep("tests")
    assert list(folder.iterdir()) == []
