"""Workers without `control_cidrs` on the strict fake of each cloud, whose firewalls count."""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address, ip_network
from typing import Any

import pytest
from tests.provision.fleet.cloud_harnesses import HARNESSES
from tests.provision.fleet.fleet_harness import CloudFleetHarness, cloud_fleets
from tests.provision.fleet.memory_cloud import MemorySession, StandInBoot

from skyplane_gateway.common.dialing import Dial
from skyplane_orchestration.errors import (
    CloudUnavailable,
    ConfigurationInvalid,
    GatewayUnreachable,
    ProvisionFailed,
    QuotaExceeded,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.fleet.admission import Admission
from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT, Instance
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner

DialTo = Callable[[str, str], Dial]
NATS = ("52.1.1.1", "52.2.2.2", "52.3.3.3")


class Network:
    """What lies between workers and instances.

    Attributes:
        source: the address by which gateways see the worker that runs.
        told: what echoes say, one after another and then the last again; empty for `source`.
    """

    def __init__(self, harness: CloudFleetHarness) -> None:
        self.harness = harness
        self.source = NATS[0]
        self.told: list[str] = []
        self.learnt = 0

    def learn(self, urls: Sequence[str]) -> str:
        self.learnt += 1
        if not self.told:
            return self.source
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]

    def lets_in(self, address: str, port: int) -> bool:
        machines = {one.address: one.instance for one in self.harness.machines.running()}
        region = machines[address].rpartition("/")[0]
        return any(
            rule.first_port <= port <= rule.last_port
            and ip_address(self.source) in ip_network(rule.source_cidr)
            for rule in self.harness.cloud.firewall(region)
        )

    def require(self, address: str, port: int) -> None:
        if not self.lets_in(address, port):
            raise GatewayUnreachable(f"{address}:{port} does not answer: timed out")

    def dial(self, host: str, port: int, timeout_s: float) -> socket.socket:
        if not self.lets_in(host, port):
            raise TimeoutError("timed out")
        ours, theirs = socket.socketpair()
        theirs.close()
        return ours

    def worker(self, **options: Any) -> InstanceProvisioner:
        """A new process that brings fleets up and ends them."""
        network = self
        context = self.harness.provisioner(control_cidrs=None, **options)._context

        class Session(MemorySession):
            def _gateway(self) -> Any:
                network.require(*self._address)
                return super()._gateway()

        class Enrolment(StandInBoot):
            def enrol(self, authority: Any, instance: Instance, *more: Any) -> str:
                network.require(instance.address, ENROLMENT_PORT)
                return super().enrol(authority, instance, *more)

        def connect(host: str, port: int, _: Any, uri: str) -> MemorySession:
            return Session(self.harness.place, (host, port), uri)

        boot = Enrolment(self.harness.place)
        context = replace(context, boot=boot, connect=connect, learn=self.learn)
        return InstanceProvisioner(context)

    def task(self) -> DialTo:
        """A new process that calls the gateways of a fleet."""
        network = self

        class Walled(Clouds):
            def dial_to(self, fleet_key: str, node: str) -> Dial:
                return network.dial

        clock, options = self.harness.clock, replace(self.harness.options, control_cidrs=None)
        clouds = Walled(self.harness.opened(lambda _: None, ()), clock)
        return Admission(clouds, options, clock, self.learn).dial_to

    def ensure(self, worker: InstanceProvisioner) -> Fleet:
        spec = self.harness.spec()
        return worker.ensure(spec, self.harness.authority(spec))

    def admitted(self, region: str) -> set[str]:
        """The addresses that reach the enrolment port."""
        rules = self.harness.cloud.firewall(region)
        return {rule.source_cidr for rule in rules if rule.first_port == ENROLMENT_PORT}


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """On the quickest fake, or that of a parameter."""
    with cloud_fleets(HARNESSES[getattr(request, "param", "gcp")]) as harness:
        yield Network(harness)


on_each_cloud = pytest.mark.parametrize("network", sorted(HARNESSES), indirect=True)


def call_all(fleet: Fleet, dial_to: DialTo) -> None:
    for gateway in fleet.gateways:
        dial_to(fleet.key, gateway.node)(*gateway.control, 10.0).close()


@on_each_cloud
@pytest.mark.parametrize("seed", range(2))
def test_tasks_get_out_by_any_address(network: Network, seed: int) -> None:
    """Each task is a process of its own, behind one NAT of several."""
    chosen = random.Random(seed)
    seen, fleet = set(), None
    for number in range(5):
        network.source = chosen.choice(NATS)
        seen.add(f"{network.source}/32")
        if fleet is None or chosen.random() < 0.4:
            fleet = network.ensure(network.worker())
        call_all(fleet, network.task())
        for region in {gateway.region for gateway in fleet.gateways}:
            assert network.admitted(region) == seen, number
    assert fleet is not None
    network.worker().destroy(fleet.key)
    assert network.harness.traces() == []


def test_echoes_see_another_address_than_gateways_at_first(network: Network) -> None:
    """Connections of one worker leave by two NAT addresses, chosen by their destination."""
    network.source, network.told = NATS[1], [NATS[0], NATS[0], NATS[1]]
    fleet = network.ensure(network.worker())
    for region in {gateway.region for gateway in fleet.gateways}:
        assert network.admitted(region) == {f"{one}/32" for one in NATS[:2]}


def test_an_address_that_changes_in_a_task_is_learnt_again(network: Network) -> None:
    fleet = network.ensure(network.worker())
    dial_to, before = network.task(), network.learnt
    call_all(fleet, dial_to)
    assert network.learnt == before, "a task that gets through asks nobody"
    for network.source in NATS[1:]:
        call_all(fleet, dial_to)
        network.harness.clock.sleep(60.0)
    assert network.learnt == before + 2


def test_gateways_that_do_not_answer_are_not_hidden(network: Network) -> None:
    """The rule is there and the gateway is not: echoes are asked once in a while only."""
    fleet = network.ensure(network.worker())
    network.told, network.source = [NATS[0]], NATS[2]
    gateway = fleet.gateways[0]
    dial, before = network.task()(fleet.key, gateway.node), network.learnt
    for _ in range(20):
        with pytest.raises(TimeoutError):
            dial(*gateway.control, 10.0)
    assert network.learnt == before + 1


def test_a_process_gets_in_again_after_another_has_made_its_fleet_anew(network: Network) -> None:
    other, dial_to = network.worker(), network.task()
    fleet = network.ensure(other)
    network.source = NATS[1]
    call_all(fleet, dial_to)
    network.source = NATS[0]
    other.destroy(fleet.key)
    network.harness.clock.sleep(60.0)
    fleet = network.ensure(other)
    regions = {gateway.region for gateway in fleet.gateways}
    assert all(network.admitted(region) == {f"{NATS[0]}/32"} for region in regions)
    network.source = NATS[1]
    call_all(fleet, dial_to)
    assert all(network.admitted(region) == {f"{one}/32" for one in NATS[:2]} for region in regions)


def test_an_address_of_each_connection_needs_ranges(network: Network) -> None:
    network.source, network.told = NATS[0], [f"52.9.9.{number}" for number in range(100)]
    with pytest.raises(ProvisionFailed, match=r"52\.9\.9\..*name their range in control_cidrs"):
        network.ensure(network.worker(boot_timeout_s=40.0, poll_s=10.0))
    assert network.harness.traces() == []


def test_a_worker_that_learns_no_address_launches_nothing(network: Network) -> None:
    def silent(urls: Sequence[str]) -> str:
        raise CloudUnavailable("this worker cannot learn the address")

    worker = network.worker()
    context = replace(worker._context, learn=silent)
    with pytest.raises(CloudUnavailable, match="cannot learn"):
        network.ensure(InstanceProvisioner(context))
    assert network.harness.running() == []
    assert network.harness.cloud.launches() == 0


def test_ranges_need_no_address(network: Network) -> None:
    worker = network.worker()
    options = replace(worker._context.options, control_cidrs=("52.0.0.0/8",))
    fleet = network.ensure(InstanceProvisioner(replace(worker._context, options=options)))
    assert network.learnt == 0
    assert {network.admitted(one.region).pop() for one in fleet.gateways} == {"52.0.0.0/8"}


def test_a_firewall_that_is_full_says_what_to_do(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise QuotaExceeded("60 rules", quota="rules per security group")

    worker = network.worker()
    monkeypatch.setattr(worker._context.clouds, "admit", full)
    with pytest.raises(ConfigurationInvalid, match=r"60 rules; or name the ranges .*control_cidrs"):
        network.ensure(worker)
