"""Fleets while a cloud, or one of its regions, does not answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.provision.fleet.harness import InstancesHarness
from tests.provision.fleet.memory_cloud import MemoryAccount, MemoryCloud
from tests.provision.samples import A, B, C, make_plan

from skyplane_orchestration.errors import (
    CloudUnavailable,
    ProvisionFailed,
    TeardownIncomplete,
)
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.parallel import answered

#: A second region of AWS.
DOWN = "aws:me-south-1"


@pytest.fixture
def harness() -> InstancesHarness:
    return InstancesHarness()


@pytest.fixture
def region_is_down(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """AWS has two regions; after the call one of them does not answer."""
    regions = MemoryCloud.regions
    monkeypatch.setattr(
        MemoryCloud,
        "regions",
        lambda self: (*regions(self), DOWN) if self.name == "aws" else regions(self),
    )

    def fail() -> None:
        for name, place in (("describe", 1), ("list_resources", 1), ("leftovers", 1)):
            monkeypatch.setattr(
                MemoryCloud, name, _without(DOWN, getattr(MemoryCloud, name), place)
            )

    return fail


def _without(region: str, verb: Callable[..., Any], place: int) -> Callable[..., Any]:
    """A verb that does not answer for a region; its regions are the argument at `place`."""

    def answer(self: MemoryCloud, *arguments: Any) -> Any:
        regions: Sequence[str] = arguments[place]
        if region in regions:
            error = CloudUnavailable(f"{region} does not answer")
            error.regions = (region,)
            raise error
        return verb(self, *arguments)

    return answer


def test_a_region_that_does_not_answer_does_not_keep_the_instances_of_the_others(
    harness: InstancesHarness, region_is_down: Callable[[], None]
) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    region_is_down()
    with pytest.raises(TeardownIncomplete, match=DOWN):
        harness.provisioner().destroy(spec.key)
    assert harness.traces() == []


def test_a_sweep_removes_fleets_of_the_regions_that_answer(
    harness: InstancesHarness, region_is_down: Callable[[], None]
) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    region_is_down()
    report = harness.late(86401.0).sweep(spec.deployment)
    assert {orphan.key: bool(orphan.error) for orphan in report.orphans} == {
        "": True,
        spec.key: False,
    }
    (silent,) = [orphan for orphan in report.orphans if not orphan.key]
    assert DOWN in silent.error
    assert harness.traces() == []


def _mute(monkeypatch: pytest.MonkeyPatch, cloud: str, *verbs: str) -> None:
    """A cloud does not answer these verbs."""

    def mute(verb: Callable[..., Any]) -> Callable[..., Any]:
        def answer(self: MemoryCloud, *arguments: Any) -> Any:
            if self.name == cloud:
                raise CloudUnavailable(f"{cloud} does not answer")
            return verb(self, *arguments)

        return answer

    for name in verbs:
        monkeypatch.setattr(MemoryCloud, name, mute(getattr(MemoryCloud, name)))


def test_a_fleet_that_does_not_come_up_leaves_nothing_in_the_clouds_that_answer(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outage that stops it also stops the undoing, but only in that cloud."""
    spec = harness.spec()

    def outage(verb: str) -> None:
        if verb == "set_ingress":
            _mute(monkeypatch, "gcp", "describe", "terminate", "leftovers")
            raise ProvisionFailed("the routes cannot be opened")

    said = "did not come up: the routes cannot be opened; and its instances .*: gcp does not answer"
    with pytest.raises(TeardownIncomplete, match=said):
        harness.provisioner(die=outage, end_timeout_s=0.5).ensure(spec, harness.authority(spec))
    assert harness.running() == [f"{B}/0"]


def test_a_fleet_needs_no_answer_of_clouds_that_it_does_not_use(
    harness: InstancesHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mute(monkeypatch, "gcp", "regions", "describe")
    spec = harness.spec(plan=make_plan([((A, C), 1.0)], {A: 1, C: 1}))
    assert len(harness.provisioner().ensure(spec, harness.authority(spec)).gateways) == 2
    with pytest.raises(TeardownIncomplete, match="gcp does not answer"):
        harness.provisioner(end_timeout_s=0.1).destroy(spec.key)
    assert harness.traces() == []


@pytest.mark.parametrize("verb", ["regions", "quotas"])
def test_a_quota_that_cannot_be_read_names_the_regions(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a plan can do without them."""
    _mute(monkeypatch, "gcp", verb)
    account = MemoryAccount()
    clouds = Clouds([MemoryCloud("aws", account), MemoryCloud("gcp", account)])
    with pytest.raises(CloudUnavailable) as caught:
        clouds.quotas((A, B))
    assert caught.value.regions == (B,)
    found, silent = answered(clouds.quotas, (A, B))
    assert ([quota.region for quota in found], list(silent)) == ([A], [B])
