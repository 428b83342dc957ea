"""Fleets on cloud instances when clouds, workers or instances fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.manual_clock import ManualClock
from tests.provision.fleet.harness import InstancesHarness, Killed, killed_before
from tests.provision.fleet.memory_cloud import MemoryCloud, StandInBoot
from tests.provision.samples import SECRET, A, B, C, make_plan

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    GatewayUnreachable,
    InstanceTypeNotOffered,
    LaunchRefused,
    NotAuthorised,
    ProvisionFailed,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.plan import RefusedLaunch, TransferPlan
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import FleetTimes
from skyplane_orchestration.transfer.fleets import Fleets
from skyplane_orchestration.transfer.instance_meter import instances_usd


@pytest.fixture
def harness() -> InstancesHarness:
    return InstancesHarness()


def fleets_of(harness: InstancesHarness, provisioner: Any) -> Fleets:
    from skyplane_orchestration.security.authority import Authority

    return Fleets(
        provisioner,
        lambda key: Authority(SECRET, key),
        session="test",
        times=FleetTimes(),
        clock=SYSTEM_CLOCK,
    )


def _age(harness: InstancesHarness, seconds: int) -> None:
    """As if all ended instances of the account had been made long ago."""
    for cloud_id, one in harness.account.instances.items():
        if one.state == "ended":
            tags = replace(
                one.tags,
                created_unix_s=one.tags.created_unix_s - seconds,
                hard_end_unix_s=one.tags.hard_end_unix_s - seconds,
            )
            harness.account.instances[cloud_id] = replace(one, tags=tags)


@pytest.mark.parametrize(("age_s", "older"), [(7200, 3600.0), (86401, None)])
def test_a_sweep_keeps_a_new_fleet_whose_former_instances_are_still_shown(
    harness: InstancesHarness, age_s: int, older: float | None
) -> None:
    """A retry of a run: the same key, while EC2 shows the ended instances for an hour."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    harness.provisioner().destroy(spec.key)
    _age(harness, age_s)
    harness.provisioner().ensure(spec, harness.authority(spec))
    report = harness.provisioner().sweep("test", older_than_s=older)
    assert (report.orphans, len(harness.running())) == ((), 5)


def test_a_sweep_keeps_a_new_fleet_that_has_only_its_firewall(harness: InstancesHarness) -> None:
    """A retry of a run that is about to launch, while EC2 shows the instances of the first try."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    harness.provisioner().destroy(spec.key)
    _age(harness, 600)
    with pytest.raises(Killed):
        harness.provisioner(die=killed_before("launch")).ensure(spec, harness.authority(spec))
    assert harness.provisioner().sweep("test").orphans == ()
    late = harness.late(harness.options.ready_timeout_s + 1)
    assert [orphan.key for orphan in late.sweep("test").orphans] == [spec.key]
    assert harness.traces() == []


def test_a_sweep_looks_again_before_it_ends_a_fleet(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its list of an account takes a while, and a retry brings one of the orphans up again."""
    one, other = harness.spec("01"), harness.spec("02")
    for spec in (one, other):
        with pytest.raises(Killed):
            harness.provisioner(die=killed_before("launch")).ensure(spec, harness.authority(spec))
    listing, begun = MemoryCloud.list_resources, threading.Lock()

    def list_resources(self: MemoryCloud, *arguments: Any) -> Any:
        found = listing(self, *arguments)
        if begun.acquire(blocking=False):
            harness.provisioner().ensure(other, harness.authority(other))
        return found

    monkeypatch.setattr(MemoryCloud, "list_resources", list_resources)
    report = harness.late(harness.options.ready_timeout_s + 1).sweep("test")
    assert [orphan.key for orphan in report.orphans] == [one.key]
    assert len(harness.running()) == 5


def test_a_sweep_ends_fleets_at_the_same_time(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes minutes in a cloud, and a crash of a scheduler leaves many."""
    for key in ("01", "02"):
        spec = harness.spec(key)
        harness.provisioner().ensure(spec, harness.authority(spec))
    both, terminate = threading.Barrier(2, timeout=10), MemoryCloud.terminate

    def meet(self: MemoryCloud, instances: Sequence[Instance]) -> None:
        """The first instances of a fleet wait for those of the other one."""
        if instances[0].instance == f"{B}/0":
            both.wait()
        terminate(self, instances)

    monkeypatch.setattr(MemoryCloud, "terminate", meet)
    assert len(harness.late(86401.0).sweep("test").orphans) == 2
    assert harness.traces() == []


def test_a_teardown_ends_instances_although_consoles_cannot_be_read(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.kill(fleet.gateway(f"{B}/0"))

    def denied(self: MemoryCloud, instance: object, max_bytes: int) -> str:
        raise CloudAccessDenied("AWS refuses ec2:GetConsoleOutput")

    monkeypatch.setattr(MemoryCloud, "console_tail", denied)
    try:
        fleets_of(harness, harness.provisioner()).teardown(spec.key)
    except SkyplaneError as error:
        print(error)
    assert harness.traces() == []


def test_the_reason_of_a_failure_survives_a_console_that_cannot_be_read(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(self: MemoryCloud, instance: object, max_bytes: int) -> str:
        raise CloudAccessDenied("AWS refuses ec2:GetConsoleOutput")

    monkeypatch.setattr(MemoryCloud, "console_tail", denied)
    spec = harness.spec()
    with pytest.raises(ProvisionFailed, match="cannot bind"):
        harness.failing().ensure(spec, harness.authority(spec))


def test_a_region_that_no_search_looks_at_gets_no_instance(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`regions` of aws does not name the region of a plan."""
    before = MemoryCloud.regions
    monkeypatch.setattr(
        MemoryCloud, "regions", lambda self: () if self.name == "gcp" else before(self)
    )
    spec = harness.spec()
    try:
        harness.provisioner().ensure(spec, harness.authority(spec))
    except ConfigurationInvalid:
        assert harness.traces() == []
        return
    harness.provisioner().destroy(spec.key)
    assert harness.traces() == []


def test_a_retry_with_another_plan_ends_the_instances_of_dropped_regions(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a fleet does not contain its plan."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    fewer = replace(spec, plan=make_plan([((A, C), 4.0)], {A: 2, C: 2}))
    before = MemoryCloud.describe

    def describe(self: MemoryCloud, key: str, regions: Any) -> Any:
        if B in regions:
            raise CloudUnavailable("no answer")
        return before(self, key, regions)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryCloud, "describe", describe)
        harness.provisioner().ensure(fewer, harness.authority(fewer))
    assert f"{B}/0" in harness.running()
    harness.provisioner().ensure(fewer, harness.authority(fewer))
    assert sorted(harness.running()) == [f"{A}/0", f"{A}/1", f"{C}/0", f"{C}/1"]
    harness.provisioner().destroy(spec.key)
    assert harness.traces() == []


@pytest.mark.parametrize(("left_s", "is_adopted"), [(610.0, True), (590.0, False), (-5.0, False)])
def test_a_fleet_that_is_about_to_end_is_not_adopted(
    harness: InstancesHarness, left_s: float, is_adopted: bool
) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    late_s = spec.times.hard_end_s - left_s
    second = harness.late(late_s).ensure(spec, harness.authority(spec))
    assert (second.gateways == first.gateways) is is_adopted
    assert (second.hard_end_unix_s > first.hard_end_unix_s) is not is_adopted
    assert len(harness.running()) == 5


def test_a_fleet_with_a_short_life_is_adopted(harness: InstancesHarness) -> None:
    spec = replace(harness.spec(), times=FleetTimes(hard_end_s=300.0))
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.late(60.0).ensure(spec, harness.authority(spec)).gateways == first.gateways


@pytest.mark.parametrize("is_late", [False, True])
def test_two_workers_that_pin_different_keys_do_not_both_go_on(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The other one pins between this one's exchange and its own tag, or right after it."""
    pin = MemoryCloud.pin_key

    def pin_late(self: MemoryCloud, instance: Any, key_id: str) -> None:
        pin(self, instance, key_id)
        self.account.pin(instance.cloud_id, "cd" * 20)

    def enrol_early(self: Any, authority: Any, instance: Any, gateways: Any, do_pin: Any) -> str:
        if harness.account.instances[instance.cloud_id].state == "running":
            harness.account.pin(instance.cloud_id, "cd" * 20)
            do_pin("ab" * 20)
        raise GatewayUnreachable("not yet")

    if is_late:
        monkeypatch.setattr(MemoryCloud, "pin_key", pin_late)
    else:
        monkeypatch.setattr(StandInBoot, "enrol", enrol_early)
    spec = harness.spec()
    with pytest.raises(NotAuthorised, match=r"another one .cdcdcdcd.* to another worker"):
        harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.traces() == []


def test_a_teardown_goes_on_when_one_look_at_the_cloud_fails(harness: InstancesHarness) -> None:
    """Many jobs end at once, and a description is throttled longer than its retries last."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    looks: list[str] = []

    def throttled(verb: str) -> None:
        if verb == "describe":
            looks.append(verb)
            if len(looks) == 6:
                raise CloudUnavailable("AWS refuses ec2:DescribeInstances and all retries")

    try:
        harness.provisioner(die=throttled).destroy(spec.key)
    except SkyplaneError as error:
        print(error)
    assert harness.running() == []


def test_a_bring_up_goes_on_when_one_look_at_the_cloud_fails(harness: InstancesHarness) -> None:
    spec = harness.spec()
    looks: list[str] = []

    def throttled(verb: str) -> None:
        if verb == "describe":
            looks.append(verb)
            if len(looks) == 6:
                raise CloudUnavailable("AWS refuses ec2:DescribeInstances and all retries")

    waiting = ManualClock()
    clock = Clock(monotonic=waiting.clock.monotonic, sleep=waiting.advance)
    worker = harness.provisioner(die=throttled, clock=clock, poll_s=2.0)
    worker.ensure(spec, harness.authority(spec))
    assert len(harness.running()) == 5


def test_an_instance_that_never_answers_names_control_cidrs(harness: InstancesHarness) -> None:
    """The first mistake of most users: the addresses of the workers are not the right ones."""
    spec = harness.spec()
    harness.account.mute.update({f"{A}/0", f"{A}/1", f"{B}/0", f"{C}/0", f"{C}/1"})
    waiting = ManualClock()
    clock = Clock(monotonic=waiting.clock.monotonic, sleep=waiting.advance)
    worker = harness.provisioner(clock=clock, poll_s=2.0, ready_timeout_s=420.0)
    with pytest.raises(ProvisionFailed, match="control_cidrs"):
        worker.ensure(spec, harness.authority(spec))


def test_a_fleet_with_another_secret_keeps_its_firewall(harness: InstancesHarness) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    before = {place: set(rules) for place, rules in harness.account.admitted.items()}

    class Refusing:
        def __init__(self, *_: object) -> None:
            pass

        def status(self) -> None:
            raise NotAuthorised("the fleet has another fleet secret")

        plan = status

        def close(self) -> None:
            pass

    context = harness.provisioner(control_cidrs=("0.0.0.0/0",))._context
    connect: Any = Refusing
    other = InstanceProvisioner(replace(context, connect=connect))
    with pytest.raises(NotAuthorised):
        other.ensure(spec, harness.authority(spec))
    assert harness.account.admitted == before


@pytest.mark.parametrize("error", [QuotaExceeded, CapacityUnavailable, InstanceTypeNotOffered])
def test_another_plan_is_brought_up_once_the_refused_fleet_is_gone(
    harness: InstancesHarness, error: type[LaunchRefused]
) -> None:
    """Catalogue of faults, 30 and 31."""
    harness.account.refusals[f"{B}/0"] = error("no room")
    spec = harness.spec()
    groups = {tag: replace(group, usd_per_hour=3.6) for tag, group in spec.plan.instances.items()}
    spec = replace(spec, plan=replace(spec.plan, instances=groups))
    without = make_plan([((A, C), 4.0)], {A: 1, C: 1})
    left: list[list[str]] = []

    def plan_again(_: TransferPlan, refused: RefusedLaunch) -> TransferPlan:
        assert (refused.region, refused.instances) == (B, 0)
        assert refused.is_quota == (error is QuotaExceeded)
        left.append(harness.traces())
        return without

    fleets = fleets_of(harness, harness.provisioner())
    fleet = fleets.ensure(spec.key, spec.plan, 0, "test", plan_again=plan_again)
    assert left == [[]]
    assert fleet.plan == replace(without, replaces=spec.plan.shape)
    assert sorted(harness.running()) == [f"{A}/0", f"{C}/0"]
    # Clouds bill the refused fleet too.
    ended = [one.name for one in fleet.instances if one.ended_unix_s is not None]
    assert sorted(ended) == [f"{A}/0", f"{A}/1", f"{C}/0", f"{C}/1"]
    # At least 60 s each at AWS, 300 s at Azure.
    assert instances_usd(fleet, time.time()) == pytest.approx((2 * 60 + 2 * 300) * 3.6 / 3600)
    # The next worker finds the same fleet by its document.
    assert fleets.rebuild(fleet).start_id == fleet.start_id
    harness.provisioner().destroy(spec.key)
    assert harness.traces() == []


def test_an_instance_without_a_launch_time_costs_since_its_fleet_was_made(
    harness: InstancesHarness,
) -> None:
    """Azure may not tell when it made a machine. The cost was counted from 1970."""
    spec = harness.spec()
    made = harness.provisioner().ensure(spec, harness.authority(spec))
    for cloud_id, one in harness.account.instances.items():
        harness.account.instances[cloud_id] = replace(one, launched_unix_s=0.0)
    found = harness.provisioner().ensure(spec, harness.authority(spec))
    assert {one.cloud_id for one in found.instances} == {one.cloud_id for one in made.instances}
    assert all(one.launched_unix_s > time.time() - 60 for one in found.instances)


def test_a_retry_goes_on_with_the_plan_that_runs_in_place_of_a_refused_one(
    harness: InstancesHarness,
) -> None:
    """It passed the refused plan: it ended the relay of a transfer, and was refused once more."""
    harness.account.refusals[f"{C}/1"] = QuotaExceeded("no room")
    spec = harness.spec(plan=make_plan([((A, C), 4.0)], {A: 1, C: 2}))
    other = make_plan([((A, B, C), 2.0)], {A: 1, B: 1, C: 1})
    asked: list[RefusedLaunch] = []

    def plan_again(_: TransferPlan, refused: RefusedLaunch) -> TransferPlan:
        asked.append(refused)
        return replace(other, refused=(refused,))

    def provision(plan: TransferPlan) -> Fleet:
        fleets = fleets_of(harness, harness.provisioner())
        return fleets.ensure(spec.key, plan, 0, "test", plan_again=plan_again)

    first = provision(spec.plan)
    assert first.plan.replaces == spec.plan.shape
    assert sorted(first.plan.instances) == sorted([A, B, C])
    # A plan that is made again took another time to solve, and the source has grown.
    again = replace(
        spec.plan, volume_gb=3.0, solver=replace(spec.plan.solver, solve_s=9.0), notes=("new",)
    )
    for plan in (spec.plan, again, first.plan):
        found = provision(plan)
        assert (found.start_id, found.plan) == (first.start_id, first.plan)
    assert len(asked) == 1
    assert sorted(harness.running()) == sorted([f"{A}/0", f"{B}/0", f"{C}/0"])
    # Another plan is not that fleet's: it takes its place, as before.
    third = provision(make_plan([((A, C), 1.0)], {A: 1, C: 1}))
    assert sorted(third.plan.instances) == [A, C]


def test_a_fleet_that_another_worker_uses_keeps_its_plan(harness: InstancesHarness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.kill(fleet.gateway(f"{B}/0"))
    harness.account.refusals[f"{B}/0"] = QuotaExceeded("no room")

    def plan_again(plan: TransferPlan, refused: RefusedLaunch) -> TransferPlan:
        raise AssertionError("the fleet has other instances")

    fleets = fleets_of(harness, harness.provisioner())
    with pytest.raises(QuotaExceeded, match="no room; instances of this fleet run and may carry"):
        fleets.ensure(spec.key, spec.plan, 0, "test", plan_again=plan_again)
    assert len(harness.running()) == 4
