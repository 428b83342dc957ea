"""Gateways inside the calling process: they come up, connect, end, and leave nothing."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.control_server.open_gateway import OpenGateway
from skyplane_orchestration.errors import FleetLost, ForeignHost, ProvisionFailed
from skyplane_orchestration.model.fleet import IN_PROCESS, GatewayPlace
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.in_process.small_jobs import (
    SmallJobsProvisioner,
    is_small_beside_clouds,
    is_small_on_this_machine,
)
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner
from skyplane_orchestration.provision.local.run_directory import RunRoot
from skyplane_orchestration.provision.provisioner import FleetSpec, FleetTimes
from skyplane_orchestration.security.authority import Authority, FleetSecret

if TYPE_CHECKING:
    from tests.provision.conftest import PlanMaker

A, B, C = "aws:us-east-1", "gcp:us-central1", "azure:westeurope"
KEY = "00000000000f1ee7"
AUTHORITY = Authority(FleetSecret(b"a fleet secret of the test suite"), KEY)


@pytest.fixture
def root(tmp_path: Path) -> RunRoot:
    return RunRoot(tmp_path / "run")


def made_of(root: RunRoot, place: GatewayPlace = "never") -> SmallJobsProvisioner:
    outside = LocalProvisioner(LocalOptions(run_root=root.path))
    return SmallJobsProvisioner(outside, root, place, is_small=is_small_on_this_machine)


@pytest.fixture
def provisioner(root: RunRoot) -> Iterator[SmallJobsProvisioner]:
    made = made_of(root)
    yield made
    made.destroy(KEY)


@pytest.fixture
def spec(plan_of: PlanMaker) -> FleetSpec:
    """A relay and a direct path, and more instances than one process runs."""
    plan = plan_of([((A, B, C), 2.0), ((A, C), 1.0)], {A: 2, B: 1, C: 2})
    return FleetSpec(KEY, 0, "test", plan)


def files(root: RunRoot) -> list[Path]:
    return sorted(root.path.rglob("*"))


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if "gateway" in thread.name}


def test_one_gateway_for_each_region_answers_and_is_connected(
    provisioner: SmallJobsProvisioner, spec: FleetSpec
) -> None:
    fleet = provisioner.ensure(spec, AUTHORITY)
    assert [gateway.node for gateway in fleet.gateways] == [f"{A}/0", f"{B}/0", f"{C}/0"]
    assert fleet.provisioner == IN_PROCESS
    for gateway in fleet.gateways:
        client = ControlClient(*gateway.control, None, AUTHORITY.expected_uri(gateway.node))
        assert client.status()["connected"]
        client.close()
    assert provisioner.describe(KEY) == (f"{A}/0", f"{B}/0", f"{C}/0")
    assert provisioner.ensure(spec, AUTHORITY) is fleet
    assert provisioner.recorded(KEY) == fleet
    provisioner.check_host(fleet)


def test_destroy_leaves_neither_thread_nor_file_nor_record(
    provisioner: SmallJobsProvisioner, root: RunRoot, spec: FleetSpec
) -> None:
    provisioner.ensure(spec, AUTHORITY)
    assert provisioner.destroy(KEY) == (f"{A}/0", f"{B}/0", f"{C}/0")
    assert provisioner.destroy(KEY) == ()
    assert (files(root), threads()) == ([], set())
    assert provisioner.recorded(KEY) is None
    assert provisioner.describe(KEY) == ()


def test_a_fleet_that_must_exist_is_not_brought_up(
    provisioner: SmallJobsProvisioner, spec: FleetSpec
) -> None:
    with pytest.raises(FleetLost):
        provisioner.ensure(replace(spec, must_exist=True), AUTHORITY)


def test_a_fleet_whose_leases_have_expired_is_brought_up_again(
    provisioner: SmallJobsProvisioner, spec: FleetSpec
) -> None:
    first = provisioner.ensure(replace(spec, times=FleetTimes(start_within_s=0.01)), AUTHORITY)
    provisioner._running[KEY].thread._thread.join()
    assert provisioner.describe(KEY) == ()
    second = provisioner.ensure(replace(spec, must_exist=True), AUTHORITY)
    assert {gateway.control for gateway in first.gateways}.isdisjoint(
        gateway.control for gateway in second.gateways
    )


def test_another_process_can_neither_share_the_fleet_nor_sweep_it(
    provisioner: SmallJobsProvisioner, root: RunRoot, spec: FleetSpec
) -> None:
    fleet = provisioner.ensure(spec, AUTHORITY)
    other = made_of(root)
    with pytest.raises(ForeignHost, match="--gateways always"):
        other.check_host(fleet)
    with pytest.raises(ProvisionFailed, match="another process is working on fleet"):
        other.ensure(spec, AUTHORITY)
    local = LocalProvisioner(LocalOptions(run_root=root.path))
    assert local.sweep("test", older_than_s=0).kept == (KEY,)
    assert provisioner.describe(KEY)


def test_a_sweep_removes_what_a_killed_process_left(root: RunRoot, spec: FleetSpec) -> None:
    killed = made_of(root)
    killed.ensure(spec, AUTHORITY)
    # The kernel releases the lock of a killed process; its files stay.
    left = root.path.with_name("left")
    shutil.copytree(root.path, left)
    killed.destroy(KEY)
    local = LocalProvisioner(LocalOptions(run_root=left))
    assert [orphan.key for orphan in local.sweep("test").orphans] == [KEY]
    assert list(left.iterdir()) == []


def test_a_gateway_that_cannot_listen_leaves_nothing(
    provisioner: SmallJobsProvisioner,
    root: RunRoot,
    spec: FleetSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An address of documentation (RFC 5737), which no machine has.
    module = "skyplane_orchestration.provision.in_process.small_jobs"
    monkeypatch.setattr(f"{module}.loopback_address", lambda _: "203.0.113.1")
    with pytest.raises(ProvisionFailed, match="did not start"):
        provisioner.ensure(spec, AUTHORITY)
    assert (files(root), threads()) == ([], set())


def test_an_error_after_the_start_is_logged(
    provisioner: SmallJobsProvisioner,
    spec: FleetSpec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(_: OpenGateway) -> None:
        raise OSError("the disk is full")

    provisioner.ensure(spec, AUTHORITY)
    monkeypatch.setattr(OpenGateway, "close", fail)
    with caplog.at_level(logging.ERROR):
        provisioner.destroy(KEY)
    assert "ended with an error" in caplog.text
    assert "the disk is full" in caplog.text


def test_more_is_small_where_one_gateway_is_both_ends(spec: FleetSpec) -> None:
    here = {"local:here": InstanceGroup("process", 1)}
    for instances, volume_gb, wanted in (
        (here, 4.0, True),
        (here, 4.1, False),
        (here, None, False),
        ({"local:here": InstanceGroup("process", 2)}, 4.0, False),
    ):
        plan = replace(spec.plan, instances=instances, volume_gb=volume_gb)
        assert is_small_on_this_machine(plan) is wanted


def test_what_is_over_before_instances_boot_is_small_beside_clouds(spec: FleetSpec) -> None:
    for volume_gb, wanted in ((1.0, True), (1.1, False), (None, False)):
        assert is_small_beside_clouds(replace(spec.plan, volume_gb=volume_gb)) is wanted


@pytest.mark.parametrize(
    ("place", "volume_gb", "is_outside"),
    [
        ("auto", 0.064, False),
        ("auto", 0.065, True),
        ("auto", None, True),
        ("never", 100.0, False),
        ("always", 0.001, True),
    ],
)
def test_small_jobs_need_no_processes(
    root: RunRoot,
    spec: FleetSpec,
    place: GatewayPlace,
    volume_gb: float | None,
    is_outside: bool,
) -> None:
    plan = replace(spec.plan, volume_gb=volume_gb)
    assert made_of(root, place)._is_outside(replace(spec, plan=plan)) == is_outside
