"""What every provisioner promises: see `skyplane_orchestration.provision.provisioner`.

What a cloud promises below that is in `fleet/test_cloud_conformance.py`.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.provision.samples import one_of_each
from tests.provision.situations import (
    CLOCK_SKEW,
    CRASH,
    CREATE_TWICE,
    DELETE_IN_USE,
    NO_CAPACITY,
    PARTIAL_FAILURE,
    QUOTA,
    SITUATIONS,
    SLOW_DELETE,
    SLOW_VISIBILITY,
    THROTTLED_API,
)

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    ConfigurationInvalid,
    FleetLost,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
    TooManyFleets,
)
from skyplane_orchestration.model.fleet import Fleet

if TYPE_CHECKING:
    from tests.provision.conftest import Harness

DAY_S = 86400.0


def nodes(fleet: Fleet) -> list[str]:
    return sorted(gateway.node for gateway in fleet.gateways)


def ends(region: str) -> list[str]:
    """The nodes of a source's or a sink's region."""
    return [f"{region}/{index}" for index in range(2)]


def planned(harness: Harness) -> list[str]:
    """The nodes of `harness.spec()`, sorted."""
    return sorted([*ends(harness.source), *ends(harness.sink), relay(harness)])


def relay(harness: Harness) -> str:
    """The node of the relay."""
    return f"{harness.relay}/0"


def without_relay(harness: Harness) -> list[str]:
    return [node for node in planned(harness) if node != relay(harness)]


def test_a_fleet_comes_up_as_planned(harness: Harness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert nodes(fleet) == planned(harness)
    assert (fleet.key, fleet.deployment, fleet.plan) == (spec.key, "test", spec.plan)
    assert fleet.provisioner == harness.provisioner().name
    assert [gateway.node for gateway in fleet.sources] == [
        f"{harness.source}/{index}" for index in range(2)
    ]
    assert [gateway.node for gateway in fleet.sinks] == [
        f"{harness.sink}/{index}" for index in range(2)
    ]
    regions = {harness.source, harness.relay, harness.sink}
    assert {gateway.region for gateway in fleet.gateways} == regions
    assert len({gateway.fingerprint for gateway in fleet.gateways}) == 5
    assert len({gateway.control for gateway in fleet.gateways}) == 5
    assert harness.provisioner().describe(spec.key) == tuple(planned(harness))


def test_the_fleet_document_survives_and_holds_no_secret(harness: Harness) -> None:
    import json

    spec = harness.spec()
    authority = harness.authority(spec)
    fleet = harness.provisioner().ensure(spec, authority)
    text = json.dumps(fleet.to_dict())
    assert Fleet.from_dict(json.loads(text)) == fleet
    assert "PRIVATE" not in text
    for handle in fleet.gateways:
        for peer in fleet.gateways:
            assert authority.hello_key(handle.node, peer.node).hex() not in text


def test_a_fleet_is_recorded_from_its_start_to_its_end(harness: Harness) -> None:
    if not harness.records_fleets:
        pytest.skip("tags do not hold a plan")
    spec = harness.spec()
    assert harness.provisioner().recorded(spec.key) is None
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.provisioner().recorded(spec.key) == fleet
    harness.provisioner().destroy(spec.key)
    assert harness.provisioner().recorded(spec.key) is None


@pytest.mark.situation(CREATE_TWICE)
def test_ensure_twice_gives_the_same_fleet(harness: Harness) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    second = harness.provisioner().ensure(spec, harness.authority(spec))
    assert second.gateways == first.gateways
    assert (second.routes, second.hard_end_unix_s) == (first.routes, first.hard_end_unix_s)
    assert len(harness.running()) == 5


@pytest.mark.situation(CREATE_TWICE)
def test_two_at_once_give_one_fleet(harness: Harness) -> None:
    spec = harness.spec()
    barrier, fleets = threading.Barrier(2), []

    def work() -> None:
        provisioner = harness.provisioner()
        barrier.wait()
        fleets.append(provisioner.ensure(spec, harness.authority(spec)))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fleets) == 2
    assert fleets[0].gateways == fleets[1].gateways
    assert len(harness.running()) == 5


@pytest.mark.situation(DELETE_IN_USE)
def test_teardown_during_provisioning_gives_all_or_nothing(harness: Harness) -> None:
    if not harness.locks_fleets:
        pytest.skip("no lock protects a fleet in a cloud; another test has its promise")
    spec = harness.spec()
    barrier, ended = threading.Barrier(2), []

    def tear_down() -> None:
        barrier.wait()
        ended.append(harness.provisioner().destroy(spec.key))

    thread = threading.Thread(target=tear_down)
    thread.start()
    barrier.wait()
    harness.provisioner().ensure(spec, harness.authority(spec))
    thread.join()
    assert len(ended[0]) + len(harness.running()) == 5
    assert len(ended[0]) in (0, 5)


@pytest.mark.situation(DELETE_IN_USE)
def test_a_teardown_of_gateways_that_come_up_leaves_nothing(harness: Harness) -> None:
    """Without a lock: `ensure` notices that its gateways have ended, and undoes itself."""
    if harness.locks_fleets:
        pytest.skip("a lock keeps the teardown waiting; another test has its promise")
    spec, ended = harness.spec(), []
    meets = harness.while_launched(
        lambda: ended.append(harness.provisioner().destroy(spec.key)),
    )
    with pytest.raises(SkyplaneError):
        meets.ensure(spec, harness.authority(spec))
    assert ended == [tuple(planned(harness))]
    assert harness.traces() == []


def test_two_fleets_do_not_touch_each_other(harness: Harness) -> None:
    one, other = harness.spec("01"), harness.spec("02")
    provisioner = harness.provisioner()
    provisioner.ensure(one, harness.authority(one))
    kept = provisioner.ensure(other, harness.authority(other))
    assert provisioner.destroy("01") == tuple(planned(harness))
    assert provisioner.describe("01") == ()
    assert provisioner.ensure(other, harness.authority(other)).gateways == kept.gateways


def test_destroy_leaves_nothing_and_is_silent_the_second_time(harness: Harness) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.provisioner().destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []
    assert harness.provisioner().destroy(spec.key) == ()
    assert harness.provisioner().describe(spec.key) == ()


def test_destroy_of_an_unknown_fleet_is_not_an_error(harness: Harness) -> None:
    assert harness.provisioner().destroy("ab") == ()
    assert harness.traces() == []


def test_destroy_after_one_was_killed(harness: Harness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.kill(fleet.gateway(relay(harness)))
    assert harness.provisioner().destroy(spec.key) == tuple(without_relay(harness))
    assert harness.traces() == []


def test_ensure_replaces_the_one_that_was_killed(harness: Harness) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.kill(first.gateway(relay(harness)))
    second = harness.provisioner().ensure(spec, harness.authority(spec))
    changed = [g.node for g in second.gateways if g != first.gateway(g.node)]
    assert changed == [relay(harness)]
    assert len(harness.running()) == 5


def test_a_fleet_that_must_exist_is_repaired_but_not_raised_again(harness: Harness) -> None:
    spec = harness.spec()
    again = replace(spec, must_exist=True)
    with pytest.raises(FleetLost):
        harness.provisioner().ensure(again, harness.authority(spec))
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    # A copy within a region has one gateway; if it dies, its transfer asks for a repair.
    for gateway in fleet.gateways:
        harness.kill(gateway)
    repaired = harness.provisioner().ensure(again, harness.authority(spec))
    assert nodes(repaired) == nodes(fleet)
    harness.provisioner().destroy(spec.key)
    with pytest.raises(FleetLost, match="torn down"):
        harness.provisioner().ensure(again, harness.authority(spec))
    assert not harness.running()


def test_a_fleet_of_another_deployment_keeps_all_its_gateways(harness: Harness) -> None:
    """The other one's plan has fewer of them."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    other = replace(one_of_each(spec), deployment="staging")
    with pytest.raises(ConfigurationInvalid, match="belongs to deployment 'test'"):
        harness.provisioner().ensure(other, harness.authority(other))
    assert len(harness.running()) == 5


@pytest.mark.parametrize("must_exist", [False, True])
def test_a_fleet_of_another_secret_keeps_all_its_gateways(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, must_exist: bool
) -> None:
    """A provision, and the repair of a transfer."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))

    def refuse(*_: object) -> dict[str, Any]:
        raise NotAuthorised("both need the same fleet secret")

    for verb in ("status", "plan"):
        monkeypatch.setattr(harness.session, verb, refuse)
    fewer = replace(one_of_each(spec), must_exist=must_exist)
    with pytest.raises(NotAuthorised):
        harness.provisioner().ensure(fewer, harness.authority(fewer))
    assert len(harness.running()) == 5


def test_gateways_that_are_no_longer_wanted_are_ended(harness: Harness) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    fewer = one_of_each(spec)
    fleet = harness.provisioner().ensure(fewer, harness.authority(fewer))
    wanted = sorted(f"{region}/0" for region in fewer.plan.instances)
    assert nodes(fleet) == wanted
    assert list(harness.provisioner().describe(spec.key)) == wanted


def test_past_its_hard_end_the_fleet_is_made_anew(harness: Harness) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    second = harness.late(DAY_S + 3600).ensure(spec, harness.authority(spec))
    assert second.hard_end_unix_s > first.hard_end_unix_s + DAY_S
    assert not {g.control for g in first.gateways} & {g.control for g in second.gateways}
    assert len(harness.running()) == 5


@pytest.mark.situation(CRASH)
def test_gateways_without_a_record_are_found_and_ended(harness: Harness) -> None:
    spec = harness.spec()
    harness.crash_after_launch(spec)
    assert harness.provisioner().describe(spec.key) == tuple(planned(harness))
    assert harness.provisioner().destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []


@pytest.mark.situation(CRASH)
def test_ensure_after_a_crash_gives_one_whole_fleet(harness: Harness) -> None:
    spec = harness.spec()
    harness.crash_after_launch(spec)
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert nodes(fleet) == planned(harness)
    assert len(harness.running()) == 5


@pytest.mark.situation(PARTIAL_FAILURE)
def test_a_partial_failure_leaves_nothing_and_says_why(harness: Harness) -> None:
    spec = harness.spec()
    with pytest.raises(ProvisionFailed, match=f"{relay(harness)}") as caught:
        harness.failing().ensure(spec, harness.authority(spec))
    assert harness.why_failed in str(caught.value)
    assert not caught.value.is_permanent
    assert harness.traces() == []


@pytest.mark.situation(PARTIAL_FAILURE)
def test_a_failed_repair_leaves_the_running_gateways(harness: Harness) -> None:
    spec = harness.spec()
    first = harness.provisioner().ensure(spec, harness.authority(spec))
    harness.kill(first.gateway(relay(harness)))
    with pytest.raises(ProvisionFailed):
        harness.failing().ensure(spec, harness.authority(spec))
    assert list(harness.provisioner().describe(spec.key)) == without_relay(harness)
    repaired = harness.provisioner().ensure(spec, harness.authority(spec))
    kept = sorted(g.node for g in repaired.gateways if g == first.gateway(g.node))
    assert kept == without_relay(harness)


def test_sweep_keeps_a_fleet_that_lives(harness: Harness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    report = harness.provisioner().sweep("test", older_than_s=3600.0)
    assert (report.orphans, report.kept) == ((), (spec.key,))
    assert harness.provisioner().ensure(spec, harness.authority(spec)).gateways == fleet.gateways


def test_sweep_removes_a_fleet_past_its_hard_end_but_not_in_a_dry_run(
    harness: Harness,
) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    dry = harness.late(DAY_S + 1).sweep("test", dry_run=True)
    assert [orphan.key for orphan in dry.orphans] == [spec.key]
    assert dry.orphans[0].gateways == tuple(planned(harness))
    assert dry.dry_run
    assert harness.provisioner().ensure(spec, harness.authority(spec)).gateways == fleet.gateways
    wet = harness.late(DAY_S + 1).sweep("test")
    assert [(o.key, o.reason) for o in wet.orphans] == [(spec.key, "past its hard end")]
    assert wet.left == ()
    assert harness.traces() == []


@pytest.mark.parametrize("left_s", [60.0, 0.0])
def test_sweep_asks_the_gateways_of_a_fleet_past_its_hard_end(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, left_s: float
) -> None:
    """A clock that was set wrong, then or now, must not end a fleet that lives."""
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    session: Any = harness.session
    inner = session.status

    def status(self: Any) -> dict[str, Any]:
        return {**inner(self), "lease_remaining_s": left_s}

    monkeypatch.setattr(session, "status", status)
    report = harness.late(DAY_S + 1).sweep("test", authority_of=lambda _: harness.authority(spec))
    assert report.kept == ((spec.key,) if left_s else ())
    assert len(harness.running()) == (5 if left_s else 0)


def test_sweep_removes_older_fleets_on_request(harness: Harness) -> None:
    spec = harness.spec()
    harness.provisioner().ensure(spec, harness.authority(spec))
    assert harness.late(7200.0).sweep("test").kept == (spec.key,)
    assert len(harness.late(7200.0).sweep("test", older_than_s=3600.0).orphans) == 1
    assert harness.traces() == []


def test_sweep_removes_a_fleet_without_running_gateways(harness: Harness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    for gateway in fleet.gateways:
        harness.kill(gateway)
    # A cloud that shows no ended instance does not tell a dead fleet from one that comes up.
    report = harness.late(3600.0).sweep("test")
    assert [orphan.reason for orphan in report.orphans] == ["none of its gateways is alive"]
    assert harness.traces() == []


def test_sweep_leaves_other_deployments_alone(harness: Harness) -> None:
    spec = harness.spec(deployment="production")
    harness.provisioner().ensure(spec, harness.authority(spec))
    report = harness.late(DAY_S + 1).sweep("test")
    assert (report.orphans, report.kept) == ((), ())
    assert len(harness.running()) == 5


def test_a_check_finds_nothing_amiss_and_leaves_nothing(harness: Harness) -> None:
    findings = harness.provisioner().check()
    assert findings
    assert [found for found in findings if not found.is_ok] == []
    assert all(found.name and found.text for found in findings)
    assert harness.traces() == []


def test_a_check_does_not_disturb_a_fleet(harness: Harness) -> None:
    spec = harness.spec()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert all(found.is_ok for found in harness.provisioner().check())
    assert harness.provisioner().ensure(spec, harness.authority(spec)).gateways == fleet.gateways


def test_what_keeps_fleets_from_coming_up_is_a_finding(harness: Harness) -> None:
    spec = harness.spec()
    provisioner = harness.unusable()
    assert not all(found.is_ok for found in provisioner.check())
    with pytest.raises(SkyplaneError):
        provisioner.ensure(spec, harness.authority(spec))
    assert not harness.running()


def test_quotas_allow_a_fleet_that_comes_up(harness: Harness) -> None:
    instances = harness.spec().plan.instances
    for quota in harness.provisioner().quotas(tuple(instances)):
        assert quota.name
        assert quota.instances is None or quota.instances >= instances[quota.region].count
        assert quota.free_vcpus is None or quota.free_vcpus > 0


def test_a_fleet_beyond_the_limit_does_not_start(harness: Harness) -> None:
    """A fleet that lives is joined, and fleets of other deployments do not count."""
    first, other = (harness.spec(key, max_active_fleets=1) for key in ("01", "02"))
    harness.provisioner().ensure(first, harness.authority(first))
    with pytest.raises(TooManyFleets, match="which is 1, with the fleets 01;") as caught:
        harness.provisioner().ensure(other, harness.authority(other))
    assert (caught.value.fleet_keys, caught.value.is_permanent) == (("01",), False)
    assert harness.provisioner().describe("02") == ()
    assert nodes(harness.provisioner().ensure(first, harness.authority(first))) == planned(harness)
    elsewhere = harness.spec("03", deployment="production", max_active_fleets=1)
    assert nodes(harness.provisioner().ensure(elsewhere, harness.authority(elsewhere))) == planned(
        harness
    )
    harness.provisioner().destroy("01")
    assert nodes(harness.provisioner().ensure(other, harness.authority(other))) == planned(harness)


def test_a_limit_of_no_fleets_is_refused(harness: Harness) -> None:
    with pytest.raises(ConfigurationInvalid, match="max_active_fleets must be at least 1, not 0"):
        harness.spec(max_active_fleets=0)


# Situations that no other test has.


@pytest.mark.situation(SLOW_VISIBILITY)
def test_gateways_that_show_late_are_started_once(harness: Harness) -> None:
    """By one worker that dies, and by the next one."""
    spec = harness.spec()
    harness.show_late()
    harness.crash_after_launch(spec)
    assert len(harness.running()) == 5
    harness.show_at_once()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert nodes(fleet) == planned(harness)
    assert len(harness.running()) == 5
    assert harness.provisioner().destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []


@pytest.mark.situation(QUOTA)
def test_a_fleet_beyond_a_quota_leaves_nothing(harness: Harness) -> None:
    spec = harness.spec()
    with pytest.raises(harness.quota_error, match=harness.quota_name) as caught:
        harness.limited().ensure(spec, harness.authority(spec))
    assert any(region in caught.value.message for region in (harness.source, harness.sink))
    assert harness.traces() == []


@pytest.mark.situation(NO_CAPACITY)
def test_a_fleet_without_capacity_leaves_nothing_and_comes_up_later(harness: Harness) -> None:
    spec = harness.spec()
    harness.exhaust()
    with pytest.raises(CapacityUnavailable) as caught:
        harness.provisioner().ensure(spec, harness.authority(spec))
    assert caught.value.region == harness.source
    assert not caught.value.is_permanent
    assert harness.traces() == []
    harness.replenish()
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert nodes(fleet) == planned(harness)


@pytest.mark.situation(SLOW_DELETE)
def test_destroy_waits_for_gateways_that_end_slowly(harness: Harness) -> None:
    spec = harness.spec()
    provisioner = harness.ending_slowly()
    provisioner.ensure(spec, harness.authority(spec))
    assert provisioner.destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []


@pytest.mark.situation(THROTTLED_API)
def test_a_throttled_api_delays_a_fleet_and_its_end(harness: Harness) -> None:
    """Catalogue of faults, 40."""
    spec = harness.spec()
    for verb in harness.throttled_verbs:
        harness.throttle(verb)
    fleet = harness.provisioner().ensure(spec, harness.authority(spec))
    assert nodes(fleet) == planned(harness)
    assert len(harness.running()) == 5
    assert harness.provisioner().destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []


@pytest.mark.situation(CLOCK_SKEW)
def test_workers_with_wrong_clocks_share_a_fleet(harness: Harness) -> None:
    spec, ahead, behind = harness.spec(), harness.late(7200.0), harness.late(-7200.0)
    fleet = ahead.ensure(spec, harness.authority(spec))
    assert behind.ensure(spec, harness.authority(spec)).gateways == fleet.gateways
    for worker in (ahead, behind):
        assert worker.sweep("test").kept == (spec.key,)
    assert harness.provisioner().destroy(spec.key) == tuple(planned(harness))
    assert harness.traces() == []


def test_every_situation_has_a_test() -> None:
    marks = [
        mark.args[0]
        for name, test in globals().items()
        if name.startswith("test_")
        for mark in getattr(test, "pytestmark", [])
        if mark.name == "situation"
    ]
    assert set(marks) == set(SITUATIONS)
