"""What is particular to gateways as processes of this machine."""

from __future__ import annotations

import itertools
import json
import math
import os
import resource
import signal
import ssl
import stat
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st
from tests.manual_clock import ManualClock

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import Topology
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    ForeignHost,
    GatewayUnreachable,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
    TooManyFleets,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.control_sessions import ControlSession
from skyplane_orchestration.provision.gateway_settings import (
    PROCESSES_VARIABLE,
    processes_per_instance,
)
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner, machine
from skyplane_orchestration.provision.local.options import loopback_address
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    GatewayFiles,
    default_run_root,
)
from skyplane_orchestration.provision.provisioner import FleetTimes

if TYPE_CHECKING:
    from tests.provision.conftest import LocalHarness, PlanMaker

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"


def ensure(harness: LocalHarness, *extra: str, **options: Any) -> Fleet:
    spec = harness.spec()
    return harness.provisioner(*extra, **options).ensure(spec, harness.authority(spec))


def environment(gateway_pid: str) -> dict[str, str]:
    raw = Path(f"/proc/{gateway_pid}/environ").read_bytes().decode()
    pairs = (entry.partition("=") for entry in raw.split("\0") if entry)
    return {name: value for name, _, value in pairs}


class Silent:
    """A session with a gateway from which no answer comes."""

    error: SkyplaneError = GatewayUnreachable("no answer in time")

    def status(self) -> dict[str, Any]:
        raise self.error

    def put_topology(self, topology: Topology) -> None:
        raise self.error

    def put_plan(self, plan: Mapping[str, Any]) -> None:
        raise self.error

    def plan(self) -> dict[str, Any]:
        raise self.error

    def renew(self, lease_s: float | None = None) -> None:
        raise self.error

    def close(self) -> None:
        pass


# -- how gateways are started


def test_every_file_is_private(local: LocalHarness) -> None:
    ensure(local)
    places = [local.run_root, *local.run_root.rglob("*")]
    directories = {stat.S_IMODE(p.stat().st_mode) for p in places if p.is_dir()}
    assert directories == {0o700}
    secret = [p for p in places if p.name in ("config.json", "gateway.pem")]
    assert len(secret) == 10
    assert {stat.S_IMODE(p.stat().st_mode) for p in secret} == {0o600}


def test_the_configuration_of_a_gateway_has_the_values_of_the_fleet(local: LocalHarness) -> None:
    spec = local.spec(times=FleetTimes(start_within_s=44.0, lease_s=33.0, hard_end_s=5000.0))
    authority = local.authority(spec)
    deadlines = {"ack_deadline_s": 1.5, "stall_deadline_s": 2.5, "write_timeout_s": 3.5}
    provisioner = local.provisioner(address_map={B: "127.5.5.5"}, gateway_settings=deadlines)
    fleet = provisioner.ensure(spec, authority)
    relay = fleet.gateway(f"{B}/0")
    assert (relay.control[0], relay.data[0]) == ("127.5.5.5", "127.5.5.5")
    config = GatewayFiles(Path(relay.details["directory"])).read_config()
    assert config is not None
    assert (config.node, config.fleet_key) == (relay.node, spec.key)
    assert (config.lease_s, config.start_within_s) == (33.0, 44.0)
    assert {name: getattr(config, name) for name in deadlines} == deadlines
    assert 0 < config.hard_end_s <= 5000.0
    # What two gateways share nobody else has: neither a key of the fleet nor one of others.
    assert config.hello_keys_hex == {
        f"{region}/{index}": authority.hello_key(relay.node, f"{region}/{index}").hex()
        for region in (A, C)
        for index in range(2)
    }
    assert fleet.gateway(f"{A}/0").control[0] == loopback_address(A)


def test_too_few_open_files_are_named_before_anything_is_started(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 256))
    spec = local.spec()  # Two gateways with 64 connections to each side, of a relay.
    with pytest.raises(ConfigurationInvalid, match=r"needs \d+ open files.*256.*`ulimit -n \d+`"):
        local.provisioner().ensure(spec, local.authority(spec))
    assert local.traces() == []
    # What a gateway may raise by itself is enough.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (64, 20_000))
    local.provisioner().ensure(spec, local.authority(spec))


def test_a_gateway_without_a_key_for_its_new_neighbour_is_started_anew(
    local: LocalHarness, plan_of: PlanMaker
) -> None:
    direct = plan_of([((A, C), 4.0)], {A: 1, C: 1})
    relayed = plan_of([((A, B, C), 4.0)], {A: 1, B: 1, C: 1})
    spec = local.spec(plan=direct)
    first = local.provisioner().ensure(spec, local.authority(spec))
    more = local.provisioner().ensure(replace(spec, plan=relayed), local.authority(spec))
    assert not {g.fingerprint for g in first.gateways} & {g.fingerprint for g in more.gateways}
    again = local.provisioner().ensure(replace(spec, plan=relayed), local.authority(spec))
    assert again.gateways == more.gateways


def test_a_gateway_that_is_started_later_ends_with_its_fleet(local: LocalHarness) -> None:
    """The hard end belongs to the fleet. A replaced gateway does not postpone it."""
    spec = local.spec(times=FleetTimes(hard_end_s=5000.0))
    fleet = local.provisioner().ensure(spec, local.authority(spec))
    lost = fleet.gateway(f"{B}/0")
    local.kill(lost)
    again = local.late(3000.0).ensure(spec, local.authority(spec))
    config = GatewayFiles(Path(again.gateway(f"{B}/0").details["directory"])).read_config()
    assert config is not None
    assert 0 < config.hard_end_s <= 2000.0
    assert again.hard_end_unix_s == fleet.hard_end_unix_s


def test_every_gateway_gets_the_same_topology(local: LocalHarness) -> None:
    fleet = ensure(local)
    again = ensure(local)
    statuses = [local.status(gateway.control) for gateway in again.gateways]
    told = statuses[0]["topologies"][0]
    assert told["routes"] == list(fleet.routes)
    # A gateway that has this one already rebuilds broken routes, and keeps the others.
    assert all(answer["topologies"] == [told, told] for answer in statuses)
    assert told["control_addresses"] == {g.node: list(g.control) for g in fleet.gateways}
    # Those that were adopted wait for their transfer anew.
    assert [answer["renewals"] for answer in statuses] == [[900.0]] * 5


def test_a_replaced_gateway_is_made_known_to_the_others(local: LocalHarness) -> None:
    local.kill(ensure(local).gateway(f"{B}/0"))
    fleet = ensure(local)
    relay = fleet.gateway(f"{B}/0")
    for gateway in fleet.gateways:
        latest = local.status(gateway.control)["topologies"][-1]
        assert latest["data_addresses"][relay.node] == list(relay.data)


def test_a_gateway_that_hangs_is_replaced(local: LocalHarness) -> None:
    first = ensure(local)
    hung = first.gateway(f"{B}/0")
    os.kill(int(hung.details["pid"]), signal.SIGSTOP)

    def connect(host: str, port: int, context: ssl.SSLContext, uri: str) -> ControlSession:
        is_hung = (host, port) == hung.control
        return Silent() if is_hung else local.session(host, port, context, uri)

    spec = local.spec()
    options = replace(local.options, term_grace_s=0.05)
    second = LocalProvisioner(options, connect=connect).ensure(spec, local.authority(spec))
    assert [g.node for g in second.gateways if g != first.gateway(g.node)] == [hung.node]
    assert len(local.running()) == 5


def test_this_machine_runs_fewer_gateways_than_a_plan_has_instances(
    local: LocalHarness, plan_of: PlanMaker
) -> None:
    spec = local.spec(plan=plan_of([((A, C), 40.0)], {A: 8, C: 1}))
    fleet = local.provisioner().ensure(spec, local.authority(spec))
    assert [gateway.node for gateway in fleet.gateways] == [f"{A}/0", f"{A}/1", f"{C}/0"]


def test_an_instance_is_several_gateways(local: LocalHarness, plan_of: PlanMaker) -> None:
    spec = local.spec(plan=plan_of([((A, C), 4.0)], {A: 1, C: 1}))
    authority = local.authority(spec)
    first = local.provisioner(processes_per_instance=2).ensure(spec, authority)
    nodes = [f"{region}/0.{process}" for region in (A, C) for process in range(2)]
    assert [gateway.node for gateway in first.gateways] == nodes
    assert len({gateway.control for gateway in first.gateways}) == 4
    assert len({gateway.data for gateway in first.gateways}) == 4
    assert first.size == "4 gateways on 2 instances"
    # A worker with other processors repairs the fleet as it was.
    local.kill(first.gateways[1])
    second = local.provisioner(processes_per_instance=3).ensure(spec, authority)
    assert [g.node for g in second.gateways if g not in first.gateways] == nodes[1:2]
    assert len(local.running()) == 4
    assert list(local.provisioner().describe(spec.key)) == nodes
    assert sorted(local.provisioner().destroy(spec.key)) == nodes
    assert local.traces() == []


@pytest.mark.parametrize(
    ("instances", "processors", "found"), [(1, 1, 1), (2, 2, 1), (2, 16, 8), (3, 16, 5), (1, 64, 8)]
)
def test_each_processor_gets_a_gateway(
    instances: int, processors: int, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, "")
    assert processes_per_instance(None, instances, processors) == found
    monkeypatch.setenv(PROCESSES_VARIABLE, "3")
    assert processes_per_instance(None, instances, processors) == 3
    assert processes_per_instance(2, instances, processors) == 2


@pytest.mark.parametrize("wrong", ["0", "65", "-1", "two"])
def test_a_wrong_number_of_processes_is_refused(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROCESSES_VARIABLE, wrong)
    with pytest.raises(ConfigurationInvalid, match=f"{PROCESSES_VARIABLE} .*{wrong}"):
        processes_per_instance(None, 1, 1)


def test_a_launch_prefix_stands_in_front(local: LocalHarness) -> None:
    fleet = ensure(local, launch_prefix={B: ("env", "MARK=1")})
    marks = {g.node: environment(g.details["pid"]).get("MARK") for g in fleet.gateways}
    assert marks == {f"{A}/0": None, f"{A}/1": None, f"{C}/0": None, f"{C}/1": None, f"{B}/0": "1"}


def test_no_gateway_sees_credentials_and_only_ends_see_the_proxy(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do-not-tell")
    monkeypatch.setenv("AIRFLOW_CONN_AWS", "do-not-tell")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/do-not-tell")
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/company.pem")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("PYTHONPATH", "relative:/absolute")
    fleet = ensure(local)
    for gateway in fleet.gateways:
        seen = environment(gateway.details["pid"])
        assert "do-not-tell" not in repr(seen)
        is_relay = gateway.region == B
        assert ("HTTPS_PROXY" in seen, "SSL_CERT_FILE" in seen) == (not is_relay, not is_relay)
        assert (seen["LC_ALL"], seen["TZ"]) == ("C.UTF-8", "Europe/Berlin")
        assert seen["HOME"] == gateway.details["directory"]
        assert seen["PYTHONPATH"] == f"{Path('relative').absolute()}:/absolute"
        assert set(seen) <= {
            *("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "PYTHONPATH", "PYTHONUSERBASE"),
            *("HOME", "LC_CTYPE", "HTTPS_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR"),
            *("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NO_PROXY", "no_proxy"),
            *(name for name in seen if name.startswith(("LC_", "COVERAGE_"))),
        }


def test_gateways_outlive_the_process_group_and_hold_no_pipe(local: LocalHarness) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    worker = os.fork()
    if worker == 0:
        os.setsid()
        ensure(local)
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b""  # Returns only when nobody holds the other end.
    os.waitpid(worker, 0)
    assert len(local.running()) == 5
    for pid in local.running():
        descriptors = {os.readlink(f"/proc/{pid}/fd/{n}") for n in (0, 1, 2)}
        assert all(path == "/dev/null" or path.endswith("gateway.log") for path in descriptors)
        assert os.readlink(f"/proc/{pid}/cwd") == "/"


# -- how starting fails


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("--refuse", "exited with status 1.*configuration refused"),
        ("--crash", "ended.*cannot bind"),
    ],
)
def test_the_error_has_the_end_of_the_log(local: LocalHarness, fault: str, said: str) -> None:
    with pytest.raises(ProvisionFailed, match=rf"(?s)gateway {B}/0 .*{said}"):
        ensure(local, fault, f"{B}/0")
    assert local.traces() == []


@pytest.mark.parametrize(
    ("fault", "said"), [("--mute", "did not become ready"), ("--lonely", "did not connect")]
)
def test_a_gateway_that_is_not_ready_in_time_is_an_error(
    local: LocalHarness, fault: str, said: str
) -> None:
    # Time stands still until every gateway has done what it will do, then runs out.
    patience = itertools.count()
    spec = local.spec()

    def monotonic() -> float:
        up = list(local.run_root.glob("*/*/gateway.log"))
        is_all_up = len(up) == 5 and all("up" in path.read_text() for path in up)
        return float(next(patience)) if is_all_up else 0.0

    provisioner = local.provisioner(fault, f"{B}/0", clock=Clock(monotonic=monotonic))
    with pytest.raises(ProvisionFailed, match=f"(?s){B}/0 .*{said}.* within 20 s.*{B}/0: up"):
        provisioner.ensure(spec, local.authority(spec))
    assert local.traces() == []


def test_a_program_that_does_not_exist_is_named(local: LocalHarness) -> None:
    with pytest.raises(ProvisionFailed, match=r"cannot be started.*no-such-program"):
        ensure(local, launch_prefix={C: ("no-such-program",)})
    assert local.traces() == []


def test_a_gateway_that_does_not_take_its_topology_is_reported(local: LocalHarness) -> None:
    spec = local.spec()
    provisioner = LocalProvisioner(local.options, connect=lambda *_: Silent())
    with pytest.raises(ProvisionFailed, match=rf"(?s){A}/0 .*topology: no answer.*{A}/0: up"):
        provisioner.ensure(spec, local.authority(spec))
    assert local.traces() == []


class TaskTerminated(BaseException):
    """As an orchestrator raises it from its signal handler."""


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, TaskTerminated])
def test_an_interruption_undoes_what_was_started(
    local: LocalHarness, interruption: type[BaseException]
) -> None:
    spec = local.spec()
    interruptions = [interruption()]

    def sleep(seconds: float) -> None:
        if interruptions:
            raise interruptions.pop()
        time.sleep(seconds)

    with pytest.raises(interruption):
        local.provisioner("--mute", f"{B}/0", clock=Clock(sleep=sleep)).ensure(
            spec, local.authority(spec)
        )
    assert local.traces() == []


def test_the_wait_for_the_lock_has_a_timeout(local: LocalHarness) -> None:
    spec = local.spec()
    local.run_root.mkdir()
    steps = ManualClock(0.0)
    directory = FleetDirectory(local.run_root / spec.key)
    with directory.locked(create=True, timeout_s=0.0, clock=Clock()):
        provisioner = local.provisioner(clock=steps.clock)
        with pytest.raises(ProvisionFailed, match="another process is working on"):
            provisioner.ensure(spec, local.authority(spec))
        with pytest.raises(TeardownIncomplete, match="another process is working on"):
            provisioner.destroy(spec.key)
        assert local.provisioner().sweep("test").kept == (spec.key,)
    assert steps.now_s > local.options.ready_timeout_s


def test_a_locked_fleet_of_another_deployment_is_not_kept_by_a_sweep(local: LocalHarness) -> None:
    ensure(local)
    directory = FleetDirectory(local.run_root / "f1ee7")
    with directory.locked(create=False, timeout_s=0.0, clock=Clock()):
        assert local.provisioner().sweep("production", dry_run=True).kept == ()


def test_the_limit_of_fleets_is_exact_for_workers_that_start_at_once(local: LocalHarness) -> None:
    barrier, refused = threading.Barrier(4), []

    def work(key: str) -> None:
        spec = local.spec(key, max_active_fleets=2)
        provisioner = local.provisioner()
        barrier.wait()
        try:
            provisioner.ensure(spec, local.authority(spec))
        except TooManyFleets:
            refused.append(key)

    threads = [threading.Thread(target=work, args=(f"0{index}",)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 2
    assert len(local.provisioner().sweep("test").kept) == 2
    assert len(local.running()) == 10


def test_a_full_disk_is_a_failure_to_provision(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(FleetDirectory, "write_fleet", full)
    with pytest.raises(ProvisionFailed, match="No space left"):
        ensure(local)
    assert local.traces() == []


# -- how gateways end


def test_destroy_says_what_is_left(local: LocalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = ensure(local)
    relay = fleet.gateway(f"{B}/0")
    kill = os.kill

    def resisting(pid: int, number: int) -> None:
        if str(pid) != relay.details["pid"]:
            kill(pid, number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", resisting)
        with pytest.raises(TeardownIncomplete, match=rf"{B}/0 \(pid {relay.details['pid']}\)"):
            local.provisioner(term_grace_s=0.05, kill_grace_s=0.05).destroy("f1ee7")
        report = LocalProvisioner(
            LocalOptions(run_root=local.run_root, term_grace_s=0.05, kill_grace_s=0.05),
            clock=Clock(wall=lambda: time.time() + 90_000),
        ).sweep("test")
    assert [(o.key, f"{B}/0" in o.error) for o in report.orphans] == [("f1ee7", True)]
    assert len(local.running()) == 1
    assert local.provisioner().destroy("f1ee7") == (f"{B}/0",)
    assert local.traces() == []


def test_processes_are_ended_though_their_files_are_gone(local: LocalHarness) -> None:
    ensure(local)
    local.run_root.rename(local.run_root.with_name("moved"))
    assert len(local.provisioner().destroy("f1ee7")) == 5
    assert local.running() == {}


def test_the_log_of_a_dead_gateway_can_be_read(local: LocalHarness) -> None:
    fleet = ensure(local)
    local.kill(fleet.gateway(f"{B}/0"))
    tails = local.provisioner().log_tails("f1ee7", max_bytes=3)
    assert tails == {gateway.node: "up\n" for gateway in fleet.gateways}
    assert local.provisioner().log_tails("ab") == {}


def test_sweep_removes_an_empty_fleet_directory(local: LocalHarness) -> None:
    (local.run_root / "ab").mkdir(parents=True)
    (local.run_root / "not-a-fleet").mkdir()
    report = local.provisioner().sweep("test")
    assert [(o.key, o.reason) for o in report.orphans] == [("ab", "left without a record")]
    assert [path.name for path in local.run_root.iterdir()] == ["not-a-fleet"]


# -- which machine


def test_a_fleet_of_another_host_is_refused_with_advice(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = ensure(local)
    local.provisioner().check_host(fleet)
    monkeypatch.setattr(machine, "host_identity", lambda: "worker-2/0b00")
    with pytest.raises(ForeignHost, match=r"SkyplaneTransferOperator\(fleet=None\).*cp") as caught:
        local.provisioner().check_host(fleet)
    assert caught.value.is_permanent
    with pytest.raises(ForeignHost, match="worker-2"):
        ensure(local)
    assert local.provisioner().sweep("test", older_than_s=0.0).kept == ("f1ee7",)
    assert local.provisioner().recorded(fleet.key) is None, "nothing there can be reached"
    assert len(local.running()) == 5


def test_a_record_of_another_release_is_ignored(local: LocalHarness) -> None:
    fleet = ensure(local)
    (record,) = local.options.run_root.glob("*/fleet.json")  # type: ignore[union-attr]
    record.write_text(json.dumps({**fleet.to_dict(), "schema_version": 99}))
    assert local.provisioner().recorded(fleet.key) is None


def test_after_a_restart_of_the_machine_the_fleet_is_made_anew(
    local: LocalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure(local)
    name, _, _ = machine.host_identity().rpartition("/")
    monkeypatch.setattr(machine, "host_identity", lambda: f"{name}/another-boot")
    with pytest.raises(ForeignHost, match="another-boot"):
        local.provisioner().check_host(first)
    second = ensure(local)
    assert second.host == f"{name}/another-boot"
    assert len({g.details["pid"] for g in (*first.gateways, *second.gateways)}) == 10
    assert len(local.running()) == 5


# -- where files are


def test_a_run_root_that_is_a_link_is_refused(local: LocalHarness, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    local.run_root.symlink_to(tmp_path / "elsewhere")
    for act in (lambda: ensure(local), lambda: local.provisioner().destroy("ab")):
        with pytest.raises(ConfigurationInvalid, match="symbolic link"):
            act()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_run_root_of_somebody_else_is_refused(local: LocalHarness) -> None:
    local.run_root.mkdir()
    os.chown(local.run_root, 12345, -1)
    with pytest.raises(ConfigurationInvalid, match="belongs to user 12345"):
        ensure(local)


def test_a_run_root_that_others_can_read_is_closed(local: LocalHarness) -> None:
    local.run_root.mkdir(mode=0o755)
    ensure(local)
    assert stat.S_IMODE(local.run_root.stat().st_mode) == 0o700


def test_a_run_root_that_cannot_be_made_is_named(local: LocalHarness) -> None:
    local.run_root.write_text("")
    with pytest.raises(ConfigurationInvalid, match="cannot be used"):
        ensure(local)


def test_the_default_run_root_is_this_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert default_run_root() == tmp_path / "skyplane-orch"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    assert default_run_root() == Path(f"/tmp/skyplane-orch-{os.geteuid()}")


@pytest.mark.parametrize("key", ["", "..", "../x", "AB", "a/b"])
def test_a_fleet_key_that_is_a_path_is_refused(local: LocalHarness, key: str) -> None:
    for act in (
        lambda: local.spec(key=key),
        lambda: local.provisioner().destroy(key),
        lambda: local.provisioner().describe(key),
    ):
        with pytest.raises(ConfigurationInvalid, match="not lower-case hex"):
            act()


def test_options_and_specifications_are_checked(local: LocalHarness) -> None:
    with pytest.raises(ConfigurationInvalid, match="cannot hold hello_keys_hex, speed"):
        LocalOptions(gateway_settings={"speed": 1, "hello_keys_hex": {}})
    for useless in ({"stall_deadline_s": 1.0}, {"write_timeout_s": "soon"}):
        with pytest.raises(ConfigurationInvalid, match=next(iter(useless))):
            LocalOptions(gateway_settings=useless)
    with pytest.raises(ConfigurationInvalid, match="at least 1"):
        LocalOptions(max_instances_per_region=0)
    with pytest.raises(ConfigurationInvalid, match=r"processes_per_instance must .* not 65"):
        LocalOptions(processes_per_instance=65)
    with pytest.raises(ConfigurationInvalid):
        local.spec(deployment="")
    for name in ("start_within_s", "lease_s", "hard_end_s"):
        for wrong in (0.0, -1.0, math.nan):
            with pytest.raises(ConfigurationInvalid, match=f"{name} must be a number"):
                FleetTimes(**{name: wrong})


@given(st.text())
def test_every_region_has_a_loopback_address(region: str) -> None:
    address = ip_address(loopback_address(region))
    assert address.is_loopback
    assert address.packed[-1] not in (0, 255)


def test_regions_differ_in_their_address() -> None:
    assert len({loopback_address(f"aws:region-{index}") for index in range(1000)}) == 1000
