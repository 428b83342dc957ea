"""The asset check `all_objects_copied`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
from tests.dagster.conftest import paris as asset
from tests.transfer import samples

from skyplane_orchestration.errors import PlanInfeasible, TransferFailed

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab


def evaluation(result: dg.ExecuteInProcessResult) -> dg.AssetCheckEvaluation:
    (found,) = result.get_asset_check_evaluations()
    assert (found.asset_key, found.check_name) == (dg.AssetKey("paris"), "all_objects_copied")
    return found


def counts(found: dg.AssetCheckEvaluation) -> dict[str, Any]:
    return {name.removeprefix("skyplane/"): one.value for name, one in found.metadata.items()}


def test_it_passes_where_all_objects_are_copied(lab: Lab) -> None:
    found = evaluation(lab.materialize(asset()))
    assert found.passed
    assert found.severity == dg.AssetCheckSeverity.ERROR
    assert counts(found) == {
        "objects": 30, "copied": 30, "skipped": 0, "failed": 0, "unfinished": 0,
    }  # fmt: skip


def test_failed_objects_that_are_allowed_are_a_warning(lab: Lab) -> None:
    lab.client.result = samples.result(failed=2, state="succeeded")
    found = evaluation(lab.materialize(asset(allow_failed=True)))
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.WARN
    assert found.description == "2 objects of 30 not at the destination"


def test_drift_is_said_and_fails_nothing(lab: Lab) -> None:
    lab.client.result = samples.result(gateways="aws", seconds=90.0, goodput_gbps=1.5)
    found = evaluation(lab.materialize(asset()))
    assert found.passed
    assert counts(found)["drift"] == -0.5
    assert str(found.description).startswith("achieved 1.50 Gbit/s, 50% less than")


def test_a_failed_transfer_fails_the_check(lab: Lab) -> None:
    left = samples.result(failed=1, unfinished=4, copied=25)
    lab.client.fail("transfer", TransferFailed("1 object failed", result=left))
    result = lab.materialize(asset())
    assert not result.success
    found = evaluation(result)
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.ERROR
    assert (counts(found)["failed"], counts(found)["unfinished"]) == (1, 4)


def test_without_a_transfer_there_is_no_evaluation(lab: Lab) -> None:
    lab.client.fail("plan", PlanInfeasible("too fast"))
    assert lab.materialize(asset()).get_asset_check_evaluations() == []


def test_an_asset_can_do_without_it(lab: Lab) -> None:
    made = asset(checks=False)
    assert list(made.check_specs) == []
    result = lab.materialize(made)
    assert result.success
    assert result.get_asset_check_evaluations() == []
    assert [spec.name for spec in asset().check_specs] == ["all_objects_copied"]
