"""What every cloud promises: see `skyplane_orchestration.provision.fleet.machines`.

`tests/provision/test_conformance.py` has what fleets on its instances promise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.provision.conftest import KUBERNETES_PARAM, open_cloud_of
from tests.provision.fleet.cloud_harness import (
    DELETE,
    DESCRIBE,
    DISKS,
    FIREWALLS,
    FOREIGN,
    LAUNCH,
    LOST_ANSWERS,
    NO_SUCH_TYPE,
    OPEN,
    ORGANISATION_POLICY,
    PERMISSIONS,
    TERMINATE,
    ZONES,
    CloudHarness,
)
from tests.provision.fleet.cloud_harnesses import HARNESSES
from tests.provision.fleet.memory_harness import MemoryHarness
from tests.provision.situations import NO_CAPACITY, QUOTA, SLOW_VISIBILITY, THROTTLED_API
from tests.provision.ssh.machines_harness import HostsHarness

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
    QuotaExceeded,
    SkyplaneError,
)
from skyplane_orchestration.model.fleet import KUBERNETES
from skyplane_orchestration.provision.fleet.machines import (
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    Machines,
)

FLEET = FleetTags(
    fleet_key="0123456789abcdef" * 2,
    deployment="prod eu=*",
    generation=1,
    created_unix_s=1_700_000_000,
    hard_end_unix_s=1_700_086_400,
    processes=2,
)
WORKERS = Ingress(7600, 7601, "198.51.100.0/24")
PEER = Ingress(7602, 7602, "203.0.113.7/32")
OTHER_PEER = Ingress(7602, 7602, "203.0.113.8/32")
KEY_ID = "ab" * 20


@pytest.fixture(params=[*sorted(HARNESSES), "memory", "ssh", KUBERNETES_PARAM])
def harness(request: pytest.FixtureRequest) -> Iterator[CloudHarness]:
    if request.param in (*HARNESSES, KUBERNETES):
        with open_cloud_of(request)() as made:
            _skip_what_it_lacks(request, made)
            yield made
        return
    other: MemoryHarness | type[HostsHarness] = HostsHarness
    if request.param == "memory":
        other = MemoryHarness()
    _skip_what_it_lacks(request, other)
    if isinstance(other, type):
        other = other(request.getfixturevalue("ssh"))  # type: ignore[assignment]
    # No test calls what it lacks.
    yield cast("CloudHarness", other)


def _skip_what_it_lacks(request: pytest.FixtureRequest, harness: Any) -> None:
    lacks = getattr(harness, "lacks", {})
    for mark in request.node.iter_markers("situation"):
        if reason := lacks.get(mark.args[0]):
            pytest.skip(f"{mark.args[0]} cannot occur with {request.param}, because {reason}")


def a_request(harness: CloudHarness, index: int = 0, **changes: Any) -> LaunchRequest:
    region = changes.get("region", harness.region)
    made = LaunchRequest(
        tags=FLEET,
        instance=f"{region}/{index}",
        region=region,
        instance_type=harness.instance_type,
        launch_id=f"{index:016x}",
        launch_number=0,
        user_data='{"token_hex": ""}',
        is_end=False,
    )
    return replace(made, **changes)


def prepared(harness: CloudHarness) -> Machines:
    cloud = harness.worker()
    cloud.create_firewalls(FLEET, [harness.region, harness.other_region])
    for region in (harness.region, harness.other_region):
        cloud.admit(FLEET, region, [WORKERS])
    return cloud


def fleet_of(harness: CloudHarness) -> tuple[Instance, ...]:
    return harness.worker().describe(FLEET.fleet_key, [harness.region, harness.other_region])


def tear_down(harness: CloudHarness) -> None:
    """As a caller does it: repeat until nothing is left."""
    cloud, regions = harness.worker(), [harness.region, harness.other_region]
    for _ in range(20):
        alive = [one for one in cloud.describe(FLEET.fleet_key, regions) if one.state != "ended"]
        cloud.terminate([one for one in alive if one.is_alive])
        left = cloud.delete_leftovers(cloud.leftovers(FLEET.fleet_key, regions))
        if not alive and not left:
            return
    raise AssertionError(f"still there: {harness.leftovers()}")


# Launch.


def test_an_instance_has_what_the_request_says(harness: CloudHarness) -> None:
    launched = prepared(harness).launch(a_request(harness))
    assert (launched.tags, launched.instance) == (FLEET, f"{harness.region}/0")
    assert (launched.region, launched.launch_id) == (harness.region, "0" * 16)
    assert (launched.is_alive, launched.key_id) == (True, "")
    fleet_of(harness)
    (found,) = fleet_of(harness)
    # Some clouds tell the address only later.
    assert launched.address in ("", found.address)
    # Workers that read the clock of a host at two moments find two times.
    assert found.launched_unix_s == pytest.approx(launched.launched_unix_s, abs=5.0)
    shown = {name: getattr(launched, name) for name in ("state", "address", "launched_unix_s")}
    assert replace(found, **shown) == launched
    assert (found.state, found.address != "") == ("running", True)
    assert abs(found.launched_unix_s - harness.clock.now_s) < 3600


def test_the_same_launch_twice_gives_one_instance(harness: CloudHarness) -> None:
    prepared(harness)
    first = harness.worker().launch(a_request(harness))
    assert harness.worker().launch(a_request(harness)).cloud_id == first.cloud_id
    assert harness.launches() == 1


def test_another_worker_finds_the_instance_of_the_first(harness: CloudHarness) -> None:
    prepared(harness)
    first = harness.worker().launch(a_request(harness))
    other = a_request(harness, launch_id="f" * 16, user_data="#!/bin/sh\nexit 1\n")
    found = harness.worker().launch(other)
    assert (found.cloud_id, found.launch_id) == (first.cloud_id, first.launch_id)
    assert harness.launches() == 1


def test_two_workers_at_once_launch_one_instance(harness: CloudHarness) -> None:
    prepared(harness)
    barrier, found = threading.Barrier(2), []

    def work(launch_id: str) -> None:
        cloud = harness.worker()
        barrier.wait()
        found.append(cloud.launch(a_request(harness, launch_id=launch_id)))

    threads = [threading.Thread(target=work, args=(text * 16,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({one.cloud_id for one in found}) == 1
    assert len({one.launch_id for one in found}) == 1
    assert harness.launches() == 1


@pytest.mark.situation(LOST_ANSWERS)
def test_a_launch_whose_answer_was_lost_is_found(harness: CloudHarness) -> None:
    """Catalogue of faults, 32."""
    cloud = prepared(harness)
    harness.lose_reply(LAUNCH)
    launched = cloud.launch(a_request(harness))
    assert [one.cloud_id for one in fleet_of(harness)] == [launched.cloud_id]
    assert harness.launches() == 1
    tear_down(harness)
    assert harness.leftovers() == {}


def test_a_crash_after_the_launch_leaves_an_instance_that_tags_tell_of(
    harness: CloudHarness,
) -> None:
    """Catalogue of faults, 33."""
    launched = prepared(harness).launch(a_request(harness))
    instances, resources = harness.worker().list_resources(
        FLEET.deployment, [harness.region, harness.other_region]
    )
    assert [one.cloud_id for one in instances] == [launched.cloud_id]
    assert instances[0].tags == FLEET
    assert {(harness.name_of(one), one.tags) for one in resources} == {
        (harness.name_of(resources[0]), FLEET)
    }
    tear_down(harness)
    assert harness.leftovers() == {}


@pytest.mark.situation(SLOW_VISIBILITY)
def test_an_instance_that_the_cloud_does_not_show_yet_is_found(harness: CloudHarness) -> None:
    prepared(harness)
    harness.hide_new(3)
    first = harness.worker().launch(a_request(harness))
    other = harness.worker().launch(a_request(harness, launch_id="f" * 16))
    assert other.cloud_id == first.cloud_id
    assert harness.launches() == 1


def test_a_launch_after_the_end_of_the_first_is_a_new_instance(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    first = cloud.launch(a_request(harness))
    cloud.terminate([first])
    fleet_of(harness)
    # A worker that no longer sees the ended one counts from the beginning.
    for launch_number in (0, 1):
        again = a_request(harness, launch_id="f" * 16, launch_number=launch_number)
        second = cloud.launch(again)
        assert second.cloud_id != first.cloud_id
        assert second.is_alive
    assert harness.launches() == 2


@pytest.mark.situation(ZONES)
def test_a_zone_without_capacity_is_passed_over(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    harness.fill(harness.region, all_zones=False)
    launched = cloud.launch(a_request(harness))
    # Azure keeps the machine that it could not place until its deletion has ended.
    alive = [one.cloud_id for one in fleet_of(harness) if one.is_alive]
    assert alive == [launched.cloud_id]
    assert harness.launches() == 1


@pytest.mark.situation(ZONES)
def test_before_the_next_zone_a_worker_looks_for_the_instance_of_another(
    harness: CloudHarness,
) -> None:
    """The first zone is still full."""
    prepared(harness)
    harness.fill(harness.region, all_zones=False)
    first = harness.worker().launch(a_request(harness))
    other = harness.worker().launch(a_request(harness, launch_id="f" * 16))
    assert other.cloud_id == first.cloud_id
    assert harness.launches() == 1


@pytest.mark.situation(NO_CAPACITY)
def test_no_capacity_in_any_zone_is_an_error_of_its_own(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    harness.fill(harness.region, all_zones=True)
    with pytest.raises(CapacityUnavailable, match=harness.instance_type) as caught:
        cloud.launch(a_request(harness))
    assert not caught.value.is_permanent
    assert cloud.launch(a_request(harness, region=harness.other_region)).is_alive


@pytest.mark.situation(QUOTA)
def test_a_quota_is_named(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    harness.set_quota(harness.vcpus)
    cloud.launch(a_request(harness))
    with pytest.raises(QuotaExceeded, match=harness.quota_name) as caught:
        cloud.launch(a_request(harness, 1))
    assert harness.region in str(caught.value)
    assert harness.quota_name in caught.value.quota
    assert not caught.value.is_permanent


def test_the_fleet_of_another_plan_follows_at_once(harness: CloudHarness) -> None:
    """It has the same key."""
    cloud = prepared(harness)
    for index in range(2):
        cloud.launch(a_request(harness, index))
    tear_down(harness)
    assert harness.leftovers() == {}
    again = prepared(harness).launch(a_request(harness, 1, launch_id="f" * 16))
    assert (again.is_alive, again.launch_id) == (True, "f" * 16)


@pytest.mark.situation(NO_SUCH_TYPE)
def test_a_type_that_the_region_does_not_offer_is_refused(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    assert cloud.vcpus(harness.region, harness.instance_type) == harness.vcpus
    for attempt in (
        lambda: cloud.vcpus(harness.region, "none-such"),
        lambda: cloud.launch(a_request(harness, instance_type="none-such")),
    ):
        with pytest.raises(InstanceTypeNotOffered, match="none-such") as caught:
            attempt()
        assert (caught.value.region, caught.value.instance_type) == (harness.region, "none-such")


# Tags.


def test_the_key_of_an_instance_is_pinned(harness: CloudHarness) -> None:
    prepared(harness)
    harness.hide_new(2)
    cloud = harness.worker()
    cloud.pin_key(cloud.launch(a_request(harness)), KEY_ID)
    for _ in range(2):
        fleet_of(harness)
    assert [one.key_id for one in fleet_of(harness)] == [KEY_ID]


def test_fleets_and_deployments_do_not_see_each_other(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    other = replace(FLEET, fleet_key="fe" * 16, deployment="prod eu=")
    cloud.create_firewalls(other, [harness.region])
    cloud.admit(other, harness.region, [WORKERS])
    mine = cloud.launch(a_request(harness))
    theirs = cloud.launch(a_request(harness, tags=other))
    regions = [harness.region, harness.other_region]
    for fleet, instance in ((FLEET, mine), (other, theirs)):
        assert [one.cloud_id for one in cloud.describe(fleet.fleet_key, regions)] == [
            instance.cloud_id
        ]
        instances, resources = cloud.list_resources(fleet.deployment, regions)
        assert {one.tags for one in instances} == {one.tags for one in resources} == {fleet}
        assert {one.tags for one in cloud.leftovers(fleet.fleet_key, regions)} == {fleet}


@pytest.mark.situation(FOREIGN)
def test_things_without_our_tags_are_left_alone(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    harness.launch_foreign(f"skyplane {launched.instance}")
    tear_down(harness)
    assert harness.foreign_is_there()
    assert {one.state for one in fleet_of(harness)} <= {"ended"}


# The firewall.


@pytest.mark.situation(FIREWALLS)
def test_a_fleet_is_closed_but_for_what_was_asked(harness: CloudHarness) -> None:
    prepared(harness)
    assert harness.firewall(harness.region) == {WORKERS}
    assert harness.firewall(harness.other_region) == {WORKERS}


@pytest.mark.situation(FIREWALLS)
def test_prepare_may_be_repeated(harness: CloudHarness) -> None:
    prepared(harness)
    prepared(harness)
    regions = [harness.region, harness.other_region]
    assert len(harness.worker().leftovers(FLEET.fleet_key, regions)) == 2
    assert harness.firewall(harness.region) == {WORKERS}


@pytest.mark.situation(FIREWALLS)
def test_prepare_takes_no_rule_from_a_fleet_that_works(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    cloud.set_ingress(FLEET, harness.region, [PEER, OTHER_PEER])
    prepared(harness)
    assert harness.firewall(harness.region) == {WORKERS, PEER, OTHER_PEER}


@pytest.mark.situation(FIREWALLS)
def test_ranges_that_overlap_open_what_the_widest_opens(harness: CloudHarness) -> None:
    """Azure refuses them in a rule, and AWS a range that it has; workers may name other ranges."""
    wide, narrow = Ingress(7600, 7601, "198.0.0.0/8"), Ingress(7600, 7601, "198.51.0.0/16")
    every = Ingress(7600, 7601, "0.0.0.0/0")
    cloud = prepared(harness)
    cloud.admit(FLEET, harness.region, [wide, narrow])
    assert harness.firewall(harness.region) == {wide, WORKERS}
    cloud.admit(FLEET, harness.region, [every, WORKERS])
    assert harness.firewall(harness.region) == {every, wide, WORKERS}
    for rules in ([PEER, replace(PEER, source_cidr="203.0.0.0/8")], [PEER]):
        cloud.set_ingress(FLEET, harness.region, rules)
        (rule,) = harness.firewall(harness.region) - {every, wide, WORKERS}
        assert rule == min(rules, key=lambda one: int(one.source_cidr.partition("/")[2]))


@pytest.mark.situation(FIREWALLS)
def test_two_workers_prepare_at_once(harness: CloudHarness) -> None:
    harness.hide_new(2)
    barrier, failures = threading.Barrier(2), []

    def work() -> None:
        cloud = harness.worker()
        barrier.wait()
        try:
            cloud.create_firewalls(FLEET, [harness.region])
            cloud.admit(FLEET, harness.region, [WORKERS])
        except CloudUnavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(harness.worker().leftovers(FLEET.fleet_key, [harness.region])) == 1
    assert harness.firewall(harness.region) == {WORKERS}


@pytest.mark.situation(FIREWALLS)
def test_the_firewall_is_set_to_exactly_the_rules(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    for rules in ([PEER], [PEER, OTHER_PEER], [OTHER_PEER], []):
        cloud.set_ingress(FLEET, harness.region, rules)
        assert harness.firewall(harness.region) == {WORKERS, *rules}
        cloud.set_ingress(FLEET, harness.region, rules)
        assert harness.firewall(harness.region) == {WORKERS, *rules}
    assert harness.firewall(harness.other_region) == {WORKERS}


@pytest.mark.situation(FIREWALLS)
def test_a_rule_for_a_worker_stays_until_the_fleet_ends(harness: CloudHarness) -> None:
    """Each worker adds its own, and sets the peers that it knows."""
    prepared(harness)
    seen = {WORKERS}
    for number in range(3):
        cloud, own = harness.worker(), replace(WORKERS, source_cidr=f"192.0.2.{number}/32")
        cloud.admit(FLEET, harness.region, [own])
        cloud.set_ingress(FLEET, harness.region, [PEER])
        cloud.admit(FLEET, harness.region, [own])
        seen.add(own)
        assert harness.firewall(harness.region) == {*seen, PEER}
    tear_down(harness)
    assert harness.leftovers() == {}


@pytest.mark.situation(FIREWALLS)
def test_workers_admit_themselves_at_once(harness: CloudHarness) -> None:
    prepared(harness)
    barrier, failures = threading.Barrier(4), []

    def work(number: int) -> None:
        cloud, own = harness.worker(), replace(WORKERS, source_cidr=f"192.0.2.{number}/32")
        barrier.wait()
        try:
            cloud.admit(FLEET, harness.region, [own])
            cloud.set_ingress(FLEET, harness.region, [PEER])
        except CloudUnavailable as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    own_rules = {replace(WORKERS, source_cidr=f"192.0.2.{number}/32") for number in range(4)}
    assert harness.firewall(harness.region) == {WORKERS, PEER, *own_rules}


@pytest.mark.situation(FIREWALLS)
def test_no_worker_is_admitted_to_a_fleet_that_is_gone(harness: CloudHarness) -> None:
    prepared(harness)
    tear_down(harness)
    with pytest.raises(CloudUnavailable, match="is gone"):
        harness.worker().admit(FLEET, harness.region, [WORKERS])
    assert harness.leftovers() == {}


@pytest.mark.situation(FIREWALLS)
def test_two_workers_open_the_firewall_at_once(harness: CloudHarness) -> None:
    prepared(harness)
    barrier = threading.Barrier(2)

    def work() -> None:
        cloud = harness.worker()
        barrier.wait()
        cloud.set_ingress(FLEET, harness.region, [PEER])

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert harness.firewall(harness.region) == {WORKERS, PEER}


@pytest.mark.situation(LOST_ANSWERS)
@pytest.mark.situation(FIREWALLS)
def test_a_rule_whose_answer_was_lost_is_there_once(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    harness.lose_reply(OPEN)
    cloud.set_ingress(FLEET, harness.region, [PEER])
    assert harness.firewall(harness.region) == {WORKERS, PEER}


@pytest.mark.situation(FIREWALLS)
def test_a_source_that_is_no_range_is_refused(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    with pytest.raises(ConfigurationInvalid, match="my-workers"):
        cloud.set_ingress(FLEET, harness.region, [Ingress(7600, 7600, "my-workers")])


# The end.


@pytest.mark.situation(FIREWALLS)
def test_a_firewall_is_deleted_once_its_instances_have_ended(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    harness.end_slowly(2)
    rest = cloud.leftovers(FLEET.fleet_key, [harness.region])
    assert cloud.delete_leftovers(rest) == rest
    cloud.terminate([launched])
    assert [one.state for one in cloud.describe(FLEET.fleet_key, [harness.region])] == ["ending"]
    assert cloud.delete_leftovers(rest) == rest
    fleet_of(harness)
    assert cloud.delete_leftovers(rest) == ()
    assert cloud.delete_leftovers(rest) == ()


def test_an_instance_ends_twice_without_an_error(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    cloud.terminate([launched])
    cloud.terminate([launched])
    fleet_of(harness)
    cloud.terminate(fleet_of(harness))
    assert not any(one.is_alive for one in fleet_of(harness))


@pytest.mark.situation(SLOW_VISIBILITY)
def test_an_instance_that_the_cloud_does_not_show_yet_is_ended(harness: CloudHarness) -> None:
    prepared(harness)
    harness.hide_new(3)
    cloud = harness.worker()
    cloud.terminate([cloud.launch(a_request(harness))])
    assert not any(one.is_alive for one in fleet_of(harness))


def test_one_unknown_instance_does_not_keep_the_others(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    gone = replace(launched, cloud_id=harness.unknown_id(launched), launched_unix_s=0.0)
    cloud.terminate([gone, launched])
    assert not any(one.is_alive for one in fleet_of(harness))


def test_an_instance_ended_by_hand_is_tolerated(harness: CloudHarness) -> None:
    """Catalogue of faults, 41."""
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    harness.end_by_hand(launched)
    assert not any(one.is_alive for one in fleet_of(harness))
    tear_down(harness)
    assert harness.leftovers() == {}


@pytest.mark.situation(DISKS)
def test_a_disk_that_was_left_behind_is_found_and_deleted(harness: CloudHarness) -> None:
    cloud = prepared(harness)
    launched = cloud.launch(a_request(harness))
    harness.leave_a_disk(launched)
    rest = cloud.leftovers(FLEET.fleet_key, [harness.region])
    assert sorted(map(harness.name_of, rest)) == ["disk", "firewall"]
    assert set(cloud.delete_leftovers(rest)) == set(rest)
    tear_down(harness)
    assert harness.leftovers() == {}


# Disturbances.


@pytest.mark.situation(THROTTLED_API)
def test_a_cloud_that_only_throttles_is_unavailable(harness: CloudHarness) -> None:
    harness.throttle(DESCRIBE, 1000)
    with pytest.raises(CloudUnavailable) as caught:
        fleet_of(harness)
    assert not caught.value.is_permanent


@pytest.mark.parametrize("verb", [LAUNCH, DESCRIBE, TERMINATE, OPEN, DELETE])
@pytest.mark.situation(PERMISSIONS)
def test_a_missing_permission_is_named(harness: CloudHarness, verb: str) -> None:
    name = harness.deny(verb)

    def use_all() -> None:
        cloud = prepared(harness)
        cloud.launch(a_request(harness))
        tear_down(harness)

    with pytest.raises(CloudAccessDenied, match=name) as caught:
        use_all()
    assert caught.value.is_permanent


@pytest.mark.situation(ORGANISATION_POLICY)
def test_a_policy_of_the_organisation_is_told_in_its_own_words(harness: CloudHarness) -> None:
    said, cloud = harness.forbid_launches(), prepared(harness)
    with pytest.raises(SkyplaneError, match=said) as caught:
        cloud.launch(a_request(harness))
    assert caught.value.is_permanent
    assert harness.launches() == 0
    tear_down(harness)
    assert harness.leftovers() == {}


@pytest.mark.situation(PERMISSIONS)
def test_regions_are_those_that_the_account_may_use(harness: CloudHarness) -> None:
    cloud = harness.worker()
    regions = cloud.regions()
    assert {harness.region, harness.other_region} <= set(regions)
    assert harness.closed_region not in regions
    others = set(regions) - cloud.named_regions
    assert all(region.startswith(f"{cloud.name}:") for region in others)
