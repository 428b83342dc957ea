"""What is particular to gateways on hosts that are reached over ssh."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import stat
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.ports import free_port
from tests.provision.ssh_server import ADDRESSES

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.ssh.connection import HostSession

if TYPE_CHECKING:
    from tests.provision.conftest import PlanMaker, SshHarness
    from tests.provision.ssh_server import Server

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"


def ensure(harness: SshHarness, **options: Any) -> Fleet:
    spec = harness.spec()
    return harness.provisioner(**options).ensure(spec, harness.authority(spec))


def with_host(harness: SshHarness, **changes: Any) -> dict[str, Any]:
    """The hosts, of which the one that every region has is another."""
    hosts = harness.ssh_options.hosts
    one = hosts[B][0]
    changed = {
        region: tuple(replace(host, **changes) if host == one else host for host in group)
        for region, group in hosts.items()
    }
    return {"hosts": changed}


def refused(harness: SshHarness, error: type[SkyplaneError], said: str, **changes: Any) -> None:
    with pytest.raises(error, match=said) as caught:
        ensure(harness, **with_host(harness, **changes))
    assert ADDRESSES[0] in str(caught.value)
    assert harness.traces() == []


# -- who answers


def test_a_host_without_a_known_key_is_refused(ssh: SshHarness, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("")
    given = {"host_key": "", "known_hosts": str(tmp_path / "known_hosts")}
    refused(ssh, NotAuthorised, r"not known.*ssh-ed25519 SHA256:.*ssh-keyscan -p", **given)


def test_a_host_with_another_key_is_refused(ssh: SshHarness, sshd: Server) -> None:
    other = (sshd.folder / "other_key.pub").read_text()
    refused(ssh, NotAuthorised, "another key than the known one", host_key=other)


def test_a_key_in_a_file_of_known_hosts_is_enough(
    ssh: SshHarness, sshd: Server, tmp_path: Path
) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[{ADDRESSES[0]}]:{sshd.port} {sshd.host_key}\n")
    changed = with_host(ssh, host_key="", known_hosts=str(known))
    assert ssh.provisioner(**changed).describe("ab") == ()


def test_a_login_with_another_key_is_refused(ssh: SshHarness, sshd: Server) -> None:
    key_file = str(sshd.folder / "other_key")
    refused(ssh, NotAuthorised, "refuses the login.*key_file", key_file=key_file)


def test_a_host_that_does_not_answer_is_named(ssh: SshHarness) -> None:
    port = free_port(ADDRESSES[0])
    refused(ssh, ProvisionFailed, "cannot be reached over ssh", port=port)
    with pytest.raises(CloudUnavailable, match=r"cannot be reached over ssh"):
        ssh.provisioner(**with_host(ssh, port=port)).describe("ab")


def test_a_lost_host_does_not_keep_the_others_alive(ssh: SshHarness) -> None:
    fleet = ensure(ssh)
    lost = [g for g in fleet.gateways if g.control[0] == ADDRESSES[0]]
    port = free_port(ADDRESSES[0])
    provisioner = ssh.provisioner(**with_host(ssh, port=port))
    with pytest.raises(TeardownIncomplete, match=r"may still run.*their lease ends them"):
        provisioner.destroy(fleet.key)
    assert len(ssh.running()) == len(lost) == 3
    report = provisioner.sweep("test")
    assert [f":{port} cannot be reached" in left for left in report.left] == [True]
    assert ssh.provisioner().destroy(fleet.key) == tuple(sorted(g.node for g in lost))
    assert ssh.traces() == []


# -- what the host has


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "/no/such/python"}, "/no/such/python cannot be run"),
        ({"key_file": "/no/such/key"}, "key_file /no/such/key .* does not exist"),
        ({"host_key": "ssh-ed25519 AAAA"}, "host_key .* cannot be read"),
    ],
)
def test_a_wrong_field_is_named(ssh: SshHarness, changes: dict[str, str], said: str) -> None:
    refused(ssh, ConfigurationInvalid, said, **changes)


def test_a_python_without_the_gateways_requirements_is_refused(
    ssh: SshHarness, sshd: Server, tmp_path: Path
) -> None:
    bare = sshd.folder / "bare-python"
    bare.write_text('#!/bin/sh\nunset PYTHONPATH\nexec python3 -I -S "$@"\n')
    bare.chmod(0o755)
    changed = with_host(ssh, python=str(bare))
    with pytest.raises(ProvisionFailed, match=r"(?s)lacks aiohttp, awscrt.*omit python"):
        ensure(ssh, **changed)
    assert ssh.traces() == []


def test_a_directory_that_is_a_link_is_refused(ssh: SshHarness) -> None:
    link = ssh.run_root / "link"
    link.symlink_to("/tmp")
    with pytest.raises(ConfigurationInvalid, match=r"link is a symbolic link .*on host"):
        ensure(ssh, **with_host(ssh, directory=str(link)))
    assert ssh.traces() == ["link"]


def test_a_plan_needs_a_host_for_each_instance(ssh: SshHarness, plan_of: PlanMaker) -> None:
    spec = ssh.spec(plan=plan_of([((A, C), 4.0)], {A: 3, C: 1}))
    with pytest.raises(ConfigurationInvalid, match=r"3 instances in aws:us-east-1.* has 2; add"):
        ssh.provisioner().ensure(spec, ssh.authority(spec))
    del (hosts := dict(ssh.ssh_options.hosts))[B]
    with pytest.raises(ConfigurationInvalid, match=f"no host for region {B}.*{A}, {C}"):
        ensure(ssh, hosts=hosts)


def test_a_region_may_have_as_many_instances_as_hosts(ssh: SshHarness) -> None:
    assert set(ssh.provisioner().provision_s.values()) == {10.0}
    assert not ssh.provisioner().has_internal_addresses
    one, two, none = ssh.provisioner().quotas((A, B, "aws:eu-west-3"))
    assert (one.region, two.region, none.region) == (A, B, "aws:eu-west-3")
    assert (one.instances, two.instances, none.instances) == (2, 1, 0)
    assert none.name == f"the hosts, which has {A}, {C}, {B}"


# -- what a check finds


def findings(harness: SshHarness, **options: Any) -> list[tuple[str, bool, str]]:
    """Of both hosts, by name."""
    found = harness.provisioner(**options).check()
    assert harness.traces() == []
    return [(one.name, one.is_ok, one.text) for one in found]


def test_a_good_host_is_described(ssh: SshHarness, sshd: Server) -> None:
    used = with_host(ssh, ports=f"{sshd.port}-{sshd.port + 9}")
    (name, is_ok, text), (_, other_is_ok, other) = findings(ssh, **used)
    assert (name, is_ok, other_is_ok) == (
        f"host {sshd.user}@{ADDRESSES[0]}:{sshd.port}",
        True,
        True,
    )
    assert re.match(rf"Python {sys.version_info.major}\.{sys.version_info.minor}\.\d+, ", text)
    assert re.search(rf"\d processors?, the ports {sshd.port}-{sshd.port + 9}, its", text)
    assert "any free port" in other


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "/no/such/python"}, "/no/such/python cannot be run"),
        ({"host_key": "ssh-ed25519 AAAA"}, "host_key .* cannot be read"),
        ({"data_address": "192.0.2.1"}, "cannot listen on its address 192.0.2.1: Cannot as"),
        ({"directory": "/proc/no"}, "No such file or directory .on host"),
    ],
)
def test_what_a_host_lacks_is_found(ssh: SshHarness, changes: dict[str, str], said: str) -> None:
    """The other host is examined nevertheless."""
    (name, is_ok, text), (_, other_is_ok, _) = findings(ssh, **with_host(ssh, **changes))
    assert ADDRESSES[0] in name
    assert (is_ok, other_is_ok) == (False, True)
    assert re.search(said, text)


def test_all_that_a_host_lacks_is_found_at_once(ssh: SshHarness, sshd: Server) -> None:
    bare = sshd.folder / "bare-python"
    bare.write_text('#!/bin/sh\nunset PYTHONPATH\nexec python3 -I -S "$@"\n')
    bare.chmod(0o755)
    port = sshd.port
    changed = with_host(ssh, python=str(bare), ports=f"{port}-{port + 1}")
    late = Clock(wall=lambda: time.time() + 900)
    with socket.create_server((ADDRESSES[0], port + 1)):
        found = ssh.provisioner(clock=late, **changed).check()
    said = [one.text for one in found if ADDRESSES[0] in one.name]
    assert f"0 ports of {port}-{port + 1} are free, and its gateways need 2" in said[0]
    assert re.search(r"lacks aiohttp, awscrt.*omit python", said[1])
    assert re.search(r"its clock is (899\.\d|900\.0) s behind this one", said[2])
    assert ["its clock" in one.text for one in found if ADDRESSES[1] in one.name] == [True]


# -- what is brought, and what is left


SshFleet = tuple["SshHarness", Fleet]


def test_all_files_are_private_to_the_account(ssh_fleet: SshFleet, sshd: Server) -> None:
    ssh, fleet = ssh_fleet
    assert fleet.host == "", "every worker with the hosts file reaches it"
    places = list(ssh.run_root.rglob("*"))
    assert {path.owner() for path in places} == {sshd.user}
    assert {stat.S_IMODE(path.stat().st_mode) for path in places if path.is_dir()} == {0o700}
    files = [path for path in places if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_each_instance_runs_on_its_own_host(ssh_fleet: SshFleet) -> None:
    _, fleet = ssh_fleet
    assert {gateway.node: gateway.control[0] for gateway in fleet.gateways} == {
        f"{A}/0": ADDRESSES[0],
        f"{A}/1": ADDRESSES[1],
        f"{C}/0": ADDRESSES[1],
        f"{C}/1": ADDRESSES[0],
        f"{B}/0": ADDRESSES[0],
    }


def test_all_hosts_are_worked_on_at_once(ssh: SshHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request of a kind to each host waits until the other host has one as well."""
    met = {verb: threading.Barrier(2) for verb in ("describe", "launch")}
    seen: set[tuple[str, HostSession]] = set()
    real = HostSession.ask

    def ask(session: HostSession, called: str, *given: Any, **more: Any) -> Any:
        if called in met and (called, session) not in seen:
            seen.add((called, session))
            met[called].wait(timeout=30.0)
        return real(session, called, *given, **more)

    monkeypatch.setattr(HostSession, "ask", ask)
    fleet = ensure(ssh)
    assert len(seen) == 4
    assert len(fleet.gateways) == len(ssh.running()) == 5


def test_a_login_outlives_the_python_that_answers_its_requests(ssh: SshHarness) -> None:
    (host, _) = ssh.ssh_options.hosts[A]
    session = HostSession(host, 10.0)

    def ask() -> object:
        return session.ask("tail", path=str(ssh.run_root), max_bytes=1, timeout_s=10.0)

    with contextlib.closing(session):
        assert ask() == ""
        (idle,) = session._idle
        idle.shutdown_write()
        assert idle.recv(1) == b""
        assert ask() == ""


def test_a_host_that_cannot_start_gateways_ends_those_of_the_other(
    ssh: SshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HostSession.ask

    def ask(session: HostSession, called: str, *given: Any, **more: Any) -> Any:
        if called == "launch" and ADDRESSES[1] in more["addresses"]:
            raise OSError(errno.EAGAIN, "no more processes")
        return real(session, called, *given, **more)

    monkeypatch.setattr(HostSession, "ask", ask)
    with pytest.raises(ProvisionFailed, match="no more processes"):
        ensure(ssh)
    assert ssh.traces() == []


def test_gateways_listen_on_the_ports_of_their_host(ssh: SshHarness, sshd: Server) -> None:
    # Those next to that of the server, which is taken on this address.
    first, last = sshd.port, sshd.port + 20
    fleet = ensure(ssh, **with_host(ssh, ports=f"{first}-{last}"))
    used = [g.control[1] for g in fleet.gateways if g.control[0] == ADDRESSES[0]]
    assert len(used) == 3
    assert all(first < port <= last for port in used)
    ssh.provisioner().destroy(fleet.key)
    said = rf"[01] ports of {first}-{first + 1} are free, .*need 2 .*{ADDRESSES[0]}"
    with pytest.raises(ProvisionFailed, match=said):
        ensure(ssh, **with_host(ssh, ports=f"{first}-{first + 1}"))
    assert ssh.traces() == []


def test_without_paramiko_the_extra_is_named(
    ssh: SshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "paramiko", None)
    name = "skyplane_orchestration.provision.ssh.connection"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(MissingExtra, match=r"skyplane-orchestration\[ssh\]"):
        ssh.provisioner().describe("ab")
    found = ssh.provisioner().check()
    assert [one.is_ok for one in found] == [False, False]
    assert "skyplane-orchestration[ssh]" in found[0].text


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make an account")
def test_the_gateways_belong_to_the_account(ssh_fleet: SshFleet, sshd: Server) -> None:
    ssh, fleet = ssh_fleet
    assert len(fleet.gateways) == len(ssh.running())
    owners = {Path(f"/proc/{pid}").owner() for pid in ssh.running()}
    assert owners == {sshd.user}
    assert sshd.user != "root"


def test_no_command_line_or_environment_has_a_secret(ssh_fleet: SshFleet) -> None:
    ssh, _ = ssh_fleet
    scripts = "".join(path.read_text() for path in ssh.run_root.rglob("boot.sh"))
    shared = "token_hex"
    assert shared in scripts
    for pid in ssh.running():
        for name in ("cmdline", "environ"):
            shown = Path(f"/proc/{pid}/{name}").read_text()
            assert shared not in shown
