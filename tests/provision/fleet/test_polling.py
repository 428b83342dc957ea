"""How often clouds are asked."""

from __future__ import annotations

from typing import Any

import pytest
from tests.manual_clock import ManualClock
from tests.provision.fleet.harness import InstancesHarness
from tests.provision.fleet.memory_cloud import MemoryCloud
from tests.provision.samples import SECRET, A

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.provision.provisioner import FleetTimes
from skyplane_orchestration.security.authority import Authority
from skyplane_orchestration.transfer.fleets import Fleets


@pytest.fixture
def harness() -> InstancesHarness:
    return InstancesHarness()


def test_the_regions_of_an_account_are_asked_for_once_in_some_minutes(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def regions(self: MemoryCloud) -> tuple[str, ...]:
        asked.append(self.name)
        return (A,) if self.name == "aws" else ()

    monkeypatch.setattr(MemoryCloud, "regions", regions)
    clock = ManualClock()
    worker = harness.provisioner(clock=clock.clock)
    for wait_s in (0.0, 299.0):
        clock.advance(wait_s)
        worker.describe("f1ee7")
        worker.destroy("f1ee7")
        worker.sweep("test")
        assert sorted(asked) == ["aws", "azure", "gcp"]
    clock.advance(2.0)
    worker.describe("f1ee7")
    assert len(asked) == 6


def test_waiting_for_a_teardown_asks_seldom(harness: InstancesHarness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    looks: list[str] = []
    clock = ManualClock()
    worker = harness.provisioner(die=looks.append, clock=clock.clock)
    fleets = Fleets(
        worker,
        lambda key: Authority(SECRET, key),
        session="test",
        times=FleetTimes(),
        clock=clock.clock,
    )
    fleets.await_teardown(fleet)
    assert clock.now_s == 1010.0
    assert looks == ["describe"] * 3 * 8


def test_fleets_that_wait_at_the_same_time_drift_apart(harness: InstancesHarness) -> None:
    waits: list[float] = []
    waiting = ManualClock()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        waiting.advance(seconds)

    spec = harness.spec()
    harness.account.hidden_looks = 20
    clock: Any = Clock(monotonic=waiting.clock.monotonic, sleep=sleep)
    worker = harness.provisioner(clock=clock, poll_s=2.0, ready_timeout_s=420.0)
    worker.ensure(spec, harness.authority(spec))
    assert all(1.6 <= seconds <= 2.4 for seconds in waits)
    assert len(set(waits)) > 10
