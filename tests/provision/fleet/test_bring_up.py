"""What only fleets on cloud instances have to promise."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace

import pytest
from tests.manual_clock import ManualClock
from tests.provision.fleet.harness import InstancesHarness, Killed, killed_before
from tests.provision.fleet.memory_cloud import MemoryCloud
from tests.provision.samples import A, B, C

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    ConfigurationInvalid,
    LaunchRefused,
    ProvisionFailed,
    QuotaExceeded,
    TeardownIncomplete,
)
from skyplane_orchestration.provision.fleet.machines import Ingress, PublicHosts
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.fleet.user_data import BootSettings


class fails_at:
    """Raises an error at one call, numbered from 0."""

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self._number = number
        self._error = error
        self.count = 0
        self.verb = ""

    def __call__(self, verb: str) -> None:
        self.count += 1
        if self.count == self._number + 1:
            self.verb = verb
            raise self._error(verb)


@pytest.fixture
def harness() -> InstancesHarness:
    return InstancesHarness()


def test_a_fleet_over_three_clouds_has_a_firewall_for_its_peers_only(
    harness: InstancesHarness,
) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    address = {gateway.node: gateway.data[0] for gateway in fleet.gateways}
    workers = Ingress(7600, 7601, "203.0.113.7/32")
    control, data, both = (7601, 7601), (7602, 7602), (7601, 7602)
    expected = {
        # The upstream gateway dials. A lead calls other sources, and sinks.
        A: {f"{A}/0": control, f"{A}/1": control},
        B: {f"{A}/0": data, f"{A}/1": data},
        C: {f"{A}/0": both, f"{A}/1": both, f"{B}/0": data},
    }
    for region, nodes in expected.items():
        _, rules = harness.account.firewalls[region, spec.key]
        peers = {Ingress(*ports, f"{address[node]}/32") for node, ports in nodes.items()}
        assert rules == peers
        assert harness.account.admitted[region, spec.key] == {workers}


def test_a_bundle_that_cannot_be_read_is_told_before_anything_is_made(
    harness: InstancesHarness,
) -> None:
    spec, settings = harness.spec(), BootSettings(bundle="nowhere")
    provisioner = InstanceProvisioner(harness.provisioner()._context, settings.require_bundle)
    with pytest.raises(ConfigurationInvalid, match="the bundle nowhere cannot be read"):
        provisioner.ensure(spec, harness.authority(spec))
    assert not harness.account.firewalls


def test_a_fleet_knows_the_pages_of_web_consoles(harness: InstancesHarness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    urls = {A: f"https://aws.test/{spec.key}", C: f"https://azure.test/{spec.key}"}
    assert fleet.console_urls == urls


def test_instances_get_the_network_tier_of_their_region_in_the_plan(
    harness: InstancesHarness,
) -> None:
    spec = harness.spec()
    groups = spec.plan.instances
    tiers = {**groups, A: replace(groups[A], network_tier="standard")}
    spec = replace(spec, plan=replace(spec.plan, instances=tiers))
    harness.provisioner().ensure(spec, harness.authority(spec))
    asked = {(one.region, one.network_tier) for one in harness.account.launched}
    assert asked == {(A, "standard"), (B, ""), (C, "")}


def test_slow_visibility_launches_nothing_twice(harness: InstancesHarness) -> None:
    harness.account.hidden_looks = 5
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.account.calls.count("launch") == 5


def test_many_workers_at_once_give_one_fleet(harness: InstancesHarness) -> None:
    harness.account.hidden_looks = 2
    spec = harness.spec()
    barrier, fleets = threading.Barrier(4), []

    def work() -> None:
        barrier.wait()
        fleets.append(harness.provisioner().ensure(spec, harness.authority(spec)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [fleet.gateways for fleet in fleets] == [fleets[0].gateways] * 4
    assert len({fleet.start_id for fleet in fleets}) == 1
    assert len(harness.running()) == 5


@pytest.mark.parametrize("error", [KeyboardInterrupt, CloudUnavailable])
def test_whatever_call_fails_once_nothing_is_left(error: type[BaseException]) -> None:
    """Ctrl-C, SIGTERM as an exception, or a call that fails, at each call in turn."""
    calls = 0
    is_over = False
    while not is_over:
        harness = InstancesHarness()
        spec = harness.spec()
        fail = fails_at(calls, error)
        with contextlib.suppress(error):
            # An instance whose launch has failed may appear for a while.
            waiting = ManualClock()
            clock = Clock(monotonic=waiting.clock.monotonic, sleep=waiting.advance)
            worker = harness.provisioner(die=fail, clock=clock, poll_s=2.0)
            worker.ensure(spec, harness.authority(spec))
            is_over = fail.count <= calls
            harness.provisioner().destroy(spec.key)
        assert harness.traces() == [], f"after call {calls}, {fail.verb}"
        calls += 1
    assert calls > 20


@pytest.mark.parametrize("error", [QuotaExceeded, CapacityUnavailable])
def test_a_refused_launch_undoes_the_others_and_keeps_its_error(
    harness: InstancesHarness, error: type[ProvisionFailed]
) -> None:
    harness.account.refusals[f"{C}/1"] = error("the reason")
    spec = harness.spec()
    with pytest.raises(error, match="the reason") as caught:
        harness.provisioner().ensure(spec, harness.authority(spec))
    refused = caught.value
    assert isinstance(refused, LaunchRefused)
    assert (refused.region, refused.instance_type, refused.launched) == (C, "process", 1)
    assert harness.traces() == []


@pytest.mark.parametrize("verb", ["create_firewalls", "admit", "launch", "pin_key", "set_ingress"])
def test_what_a_killed_worker_leaves_is_adopted_or_swept(
    harness: InstancesHarness, verb: str
) -> None:
    spec = harness.spec()
    with pytest.raises(Killed):
        harness.provisioner(die=killed_before(verb)).ensure(spec, harness.authority(spec))
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert len(fleet.gateways) == len(harness.running()) == 5
    with pytest.raises(Killed):
        harness.provisioner(die=killed_before("terminate")).destroy(spec.key)
    harness.late(86401.0).sweep("test")
    assert harness.traces() == []


def test_an_instance_whose_gateway_is_silent_is_replaced(harness: InstancesHarness) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    lost = first.gateway(f"{B}/0")
    del harness.account.gateways[lost.control]
    impatient = harness.provisioner(answer_timeout_s=0.05)
    second = impatient.ensure(spec, harness.authority(spec))
    changed = [one.node for one in second.gateways if one != first.gateway(one.node)]
    assert changed == [f"{B}/0"]
    assert len(harness.running()) == 5


def test_a_fleet_names_all_that_it_is_billed_for(harness: InstancesHarness) -> None:
    spec = harness.spec()
    harness.account.mute.add(f"{B}/0")
    waiting = ManualClock()

    def sleep(seconds: float) -> None:
        waiting.advance(seconds)
        if waiting.now_s > 1007.0:
            harness.account.mute.clear()

    clock = Clock(monotonic=waiting.clock.monotonic, wall=waiting.clock.wall, sleep=sleep)
    worker = harness.provisioner(clock=clock, poll_s=2.0, boot_timeout_s=5.0, ready_timeout_s=60.0)
    billed = worker.ensure(spec, harness.authority(spec)).instances
    assert len({one.cloud_id for one in billed}) == harness.account.calls.count("launch") == 6
    (lost,) = [one for one in billed if one.ended_unix_s is not None]
    assert (lost.name, lost.region, lost.launched_unix_s) == (f"{B}/0", B, 1000.0)
    again = worker.ensure(spec, harness.authority(spec)).instances
    assert {one.cloud_id for one in again} == {one.cloud_id for one in billed} - {lost.cloud_id}


def test_an_instance_that_never_answers_is_replaced_once(harness: InstancesHarness) -> None:
    """Catalogue of faults, 34."""
    spec = harness.spec()
    harness.account.mute.add(f"{B}/0")
    waiting = ManualClock()
    clock = Clock(monotonic=waiting.clock.monotonic, sleep=waiting.advance)
    worker = harness.provisioner(clock=clock, poll_s=2.0, boot_timeout_s=5.0, ready_timeout_s=60.0)
    with pytest.raises(
        ProvisionFailed, match=rf"gateway {B}/0 .* did not answer within 5 s"
    ) as got:
        worker.ensure(spec, harness.authority(spec))
    assert f"{B}/0: up" in str(got.value)
    assert harness.account.calls.count("launch") == 6
    assert harness.traces() == []


def test_an_instance_that_ends_at_once_is_replaced_once(harness: InstancesHarness) -> None:
    spec = harness.spec()
    worker = harness.failing()
    with pytest.raises(ProvisionFailed, match=rf"gateway {B}/0 .* ended \(cannot bind"):
        worker.ensure(spec, harness.authority(spec))
    assert harness.account.calls.count("launch") == 6


def test_an_end_that_takes_too_long_is_an_error(harness: InstancesHarness) -> None:
    harness.account.slow_ends = 10**9
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    with pytest.raises(TeardownIncomplete, match=r"have not ended after 0.05 s.*i-0000"):
        harness.provisioner(end_timeout_s=0.05).destroy(spec.key)


def test_a_region_of_a_cloud_without_settings_is_refused(harness: InstancesHarness) -> None:
    spec = harness.spec()
    provisioner = harness.provisioner()
    del provisioner._context.clouds._by_name["gcp"]
    with pytest.raises(ConfigurationInvalid, match=f"region {B} needs settings .* 'gcp'"):
        provisioner.ensure(spec, harness.authority(spec))
    assert harness.traces() == []


def test_a_sweep_keeps_a_fleet_that_is_about_to_get_instances(harness: InstancesHarness) -> None:
    spec = harness.spec()
    with pytest.raises(Killed):
        harness.provisioner(die=killed_before("launch")).ensure(spec, harness.authority(spec))
    assert harness.provisioner().sweep("test").kept == (spec.key,)
    report = harness.late(21.0).sweep("test")
    assert [orphan.reason for orphan in report.orphans] == ["none of its gateways is alive"]
    assert harness.traces() == []


def test_the_check_of_a_provisioner_tells_of_the_worker_too(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryCloud, "public_hosts", PublicHosts("127.77.0.1", "127.77.0.1"))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    told = {one.name for one in harness.provisioner().check() if "proxy.example" in one.text}
    assert told == {"aws worker", "gcp worker", "azure worker"}


def test_control_cidrs_of_half_the_internet_are_a_warning(
    harness: InstancesHarness, caplog: pytest.LogCaptureFixture
) -> None:
    assert all(not one.is_warning for one in harness.provisioner().check())
    wide = harness.provisioner(control_cidrs=("10.0.0.0/8", "64.0.0.0/2", "128.0.0.0/7", "::/0"))
    first, second, *others = wide.check()
    assert (first.is_ok, first.is_warning) == (True, True)
    assert first.text.startswith("control_cidrs has 64.0.0.0/2, 128.0.0.0/7: ")
    assert (second.is_ok, second.is_warning) == (True, True)
    assert second.text.startswith("control_cidrs has ::/0, which opens nothing: ")
    assert [one.is_warning for one in others] == [False] * 3
    spec = harness.spec()
    wide.ensure(spec, harness.authority(spec))
    assert [text for text in caplog.messages if "control_cidrs has" in text] == [
        first.text,
        second.text,
    ]
    sources = {rule.source_cidr for rules in harness.account.admitted.values() for rule in rules}
    assert "::/0" not in sources
    assert "64.0.0.0/2" in sources
