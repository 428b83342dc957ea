from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tests.transfer import samples
from tests.transfer.samples import GB, A, B, R, fleet_of

from skyplane_orchestration.cli.result_lines import result_parts
from skyplane_orchestration.errors import ConfigurationInvalid, InternalError
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import InstanceGroup, PlanCost, PlanEdge
from skyplane_orchestration.model.result import CopiedObject, TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.results import cut, result_of

PLAN = replace(
    samples.PLAN,
    throughput_gbps=6.0,
    cost=PlanCost(1.0, 0.1, 0.05, 1.15, 0.11),
    instances={A: InstanceGroup("x", 1, 3.6), B: InstanceGroup("y", 2, 1.8)},
    edges=(
        PlanEdge(A, B, 4.0, 64, 5.0, 0.09),
        PlanEdge(A, R, 2.0, 32, 5.0, 0.02),
        PlanEdge(R, B, 2.0, 32, 5.0, 0.05),
    ),
)
NODES = {"a": A, "r": R, "b": B, "c": B}
FLEET = fleet_of("ab", "ac", "arb", plan=PLAN, regions=NODES, provision_s=10.0)
JOB = TransferJob(Location("s3://src/p/"), Location("gs://dst/q/"))


def status(**changes: Any) -> TransferStatus:
    usual: dict[str, Any] = {
        "state": "succeeded",
        "bytes": 4 * GB,
        "copied": 3,
        "copied_bytes": 4 * GB,
        "seconds": 8.0,
        "delivered_bytes": {"0": GB, "1": 2 * GB, "2": GB},
        "of_next_year": True,
    }
    return samples.status(**{**usual, **changes})


def failure(number: int, key: str = "p/x", reason: str = "gone") -> dict[str, Any]:
    return {
        "state": "failed",
        "source": f"{key}{number}",
        "destination": f"{key}{number}",
        "bytes": 1,
        "attempts": 5,
        "code": "not-found",
        "reason": reason,
    }


def test_the_rates_of_a_probe_stand_beside_those_of_the_grid() -> None:
    probe = EdgeMeasurement(A, B, 3.2, 64, 1, 3.0, GB, 0.0, modelled_gbps=5.0)
    result = result_of(JOB, replace(FLEET, probes=(probe,)), status())
    grid_gbps = {(edge.src, edge.dst): edge.capacity_gbps for edge in FLEET.plan.edges}
    assert {(e.src, e.dst): (e.modelled_gbps, e.probed_gbps) for e in result.edges} == {
        (A, B): (5.0, 3.2),
        (A, R): (grid_gbps[A, R], None),
        (R, B): (grid_gbps[R, B], None),
    }
    assert result.measured == (probe,)


def test_planned_against_achieved_per_edge() -> None:
    result = result_of(JOB, FLEET, status())
    assert {(e.src, e.dst): (e.sent_bytes, e.planned_gbps) for e in result.edges} == {
        (A, B): (3 * GB, 4.0),
        (A, R): (GB, 2.0),
        (R, B): (GB, 2.0),
    }
    assert result.edges[0].achieved_gbps == pytest.approx(3.0)
    assert result.goodput_gbps == pytest.approx(4.0)
    assert result.planned_gbps == 6.0


def test_the_result_names_the_provisioner() -> None:
    assert result_of(JOB, FLEET, status()).gateways == FLEET.provisioner == "local"
    assert where_gateways_run("") == "no gateways"
    assert where_gateways_run("aws") == "gateways are run by the provisioner 'aws'"


def test_cost_is_computed_from_bytes_and_seconds() -> None:
    cost = result_of(JOB, FLEET, status()).cost
    assert cost.egress_usd == pytest.approx(3 * 0.09 + 0.02 + 0.05)
    # 7.2 USD per hour for the 8 s of moving and the 10 s of provisioning.
    assert cost.instance_usd == pytest.approx(7.2 / 3600 * 18)
    assert cost.request_usd == 0.05
    assert cost.total_usd == pytest.approx(cost.egress_usd + cost.instance_usd + 0.05)


def test_nothing_copied_in_no_time() -> None:
    none = status(copied=0, copied_bytes=0, seconds=0.0, delivered_bytes={})
    result = result_of(JOB, FLEET, none)
    assert (result.goodput_gbps, result.cost.egress_usd, result.cost.request_usd) == (0, 0, 0)


OBJECTS_FAILED = {"code": "objects-failed", "message": "1 of 3 objects failed"}


def test_failed_objects_fail_the_transfer_unless_they_may() -> None:
    ended = status(state="failed", failed=1, error=OBJECTS_FAILED, failures=[failure(1)])
    failed = result_of(JOB, FLEET, ended)
    assert (failed.state, failed.succeeded, failed.error_code) == (
        "failed",
        False,
        "objects-failed",
    )
    assert failed.failures[0].source == "s3://src/p/x1"
    assert failed.failures[0].destination == "gs://dst/p/x1"
    tolerant = replace(JOB, allow_failed=True)
    assert result_of(tolerant, FLEET, ended).succeeded
    lost = status(state="failed", error={"code": "gateway-lost", "message": "m"})
    assert not result_of(tolerant, FLEET, lost).succeeded


@pytest.mark.parametrize("character", ["k", "\u00e4", "\U0001f600", '"', "\n"])
def test_a_result_stays_below_48_kib_however_long_the_keys(character: str) -> None:
    key = character * (1000 // len(character.encode()))
    reason = f"{key!r} could not be written: " + "why " * 500
    ended = status(
        state="failed",
        failed=10_000,
        failures=[failure(number, key, reason) for number in range(50)],
        largest=[{"source": f"{key}{n}", "destination": key, "bytes": n} for n in range(10)],
        error={"code": "objects-failed", "message": f"10000 of 10000 failed: {reason}"},
    )
    warnings = tuple(f"the upload {n} of {key!r} stays open: {reason}" for n in range(500))
    result = result_of(JOB, FLEET, ended, warnings=warnings)
    document = result.to_dict()
    assert len(json.dumps(document)) < 48 << 10
    assert TransferResult.from_dict(json.loads(json.dumps(document))) == result
    assert result.failed == 10_000
    # The keys are never cut, so that a reader can find the objects.
    assert len(result.failures) >= 3
    assert result.largest[:1] in ((), (CopiedObject(f"s3://src/{key}0", f"gs://dst/{key}", 0),))
    assert result.failures[0].source == f"s3://src/{key}0"
    assert result.warnings[-1] == "and 490 more warnings like these"


def test_the_largest_objects_have_urls() -> None:
    rows = [{"source": "p/a", "destination": "q/a", "bytes": 7}]
    assert result_of(JOB, FLEET, status(state="succeeded", largest=rows)).largest == (
        CopiedObject("s3://src/p/a", "gs://dst/q/a", 7),
    )


def test_short_failures_are_all_listed() -> None:
    ended = status(state="failed", error=OBJECTS_FAILED, failures=[failure(n) for n in range(60)])
    assert len(result_of(JOB, FLEET, ended).failures) == 50


@given(st.text(), st.integers(12, 400))
def test_a_cut_text_is_the_beginning_and_fits(text: str, max_bytes: int) -> None:
    short = cut(text, max_bytes)
    assert len(json.dumps(short)) <= max_bytes
    assert short == text or (short.endswith("...") and text.startswith(short[:-3]))


def test_a_broken_status_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid):
        TransferStatus.from_document({"transfer_key": "x"})
    with pytest.raises(ConfigurationInvalid):
        status(delivered_bytes=[])
    with pytest.raises(ConfigurationInvalid):
        status(failures=None)


def test_a_result_says_which_objects_are_unfinished() -> None:
    ended = status(state="failed", objects=9, copied=2, failed=1, unfinished=6)
    assert result_of(JOB, FLEET, ended).unfinished == 6


@pytest.mark.parametrize(
    "counts",
    [{"unfinished": 0, "objects": 4}, {"unfinished": 1, "objects": 3}],
    ids=["lost", "counted twice"],
)
def test_a_status_that_does_not_add_up_makes_no_result(counts: dict[str, Any]) -> None:
    with pytest.raises(InternalError, match="add up"):
        status(**counts)
    with pytest.raises(InternalError, match="add up"):
        result_of(JOB, FLEET, replace(status(), **counts))


LOST = {"not_carried": 3, "not_carried_by_name": {"tags": 3, "storage-class": 1}}
UNMATCHED = {"unmatched_patterns": [f"exclude 'p{n}'" for n in range(12)]}


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ({}, {}, []),
        (LOST, {}, ["3 objects lost some metadata in the copy: tags (3), storage-class (1)"]),
        (LOST, {}, ["--strict-metadata"]),
        (LOST, {"destination": Location("/data/out/")}, ["files do not keep it"]),
        ({"archived": 1}, {}, ["archived them: 1 object;"]),
        # Nobody can do anything about the journals of other runs, or about missing checksums.
        ({"reserved": 3}, {}, []),
        ({"unchecked": 3}, {}, []),
        (UNMATCHED, {}, ["no key at the source matches exclude 'p0', exclude 'p1'"]),
        (UNMATCHED, {}, ["exclude 'p9' and 2 more, so nothing is left out"]),
        # The listings for deletes look at both ends, and warn themselves.
        (UNMATCHED, {"delete": True}, []),
    ],
)
def test_a_result_warns_of_what_its_user_can_change(
    changes: dict[str, Any], more: dict[str, Any], words: list[str]
) -> None:
    result = result_of(replace(JOB, **more), FLEET, status(**changes))
    found = zip(words, result.warnings, strict=True)
    assert [word in warning for word, warning in found] == [True] * len(words)


def test_a_result_counts_what_is_reserved_unchecked_or_without_its_metadata() -> None:
    result = result_of(JOB, FLEET, status(reserved=3, unchecked=2, **LOST))
    assert (result.reserved, result.unchecked, result.metadata_not_carried) == (3, 2, 3)
    assert result.not_carried_by_name == LOST["not_carried_by_name"]
    assert TransferResult.from_dict(result.to_dict()) == result
    line = "2 objects without a checksum of the source to compare with"
    assert line in result_parts(result)
    # A gateway of the release before does not say it.
    earlier = result_of(JOB, FLEET, status())
    assert (earlier.unchecked, line in result_parts(earlier)) == (0, False)
