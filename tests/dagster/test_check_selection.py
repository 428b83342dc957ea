"""Runs that leave the check `all_objects_copied` out, and runs of the check alone."""

# No postponed annotations: Dagster reads those of the op.

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.dagster.conftest import paris
from tests.transfer import samples

from skyplane_orchestration.dagster import (
    SkyplaneResource,
    skyplane_assets,
)
from skyplane_orchestration.errors import TransferFailed
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

WITHOUT = dg.AssetSelection.assets("paris").without_checks()
ALONE = dg.AssetSelection.checks(dg.AssetCheckKey(dg.AssetKey("paris"), "all_objects_copied"))


def one_op() -> dg.AssetsDefinition:
    @skyplane_assets(jobs={"paris": TransferJob(Location("s3://a/x/"), Location("s3://b/y/"))})
    def copied(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context=context)

    return copied


FORMS = pytest.mark.parametrize("form", [paris, one_op])
Form = Callable[[], dg.AssetsDefinition]


@FORMS
def test_a_run_may_leave_it_out(lab: "Lab", form: Form) -> None:
    result = lab.run(form(), WITHOUT)
    assert result.success
    assert len(result.get_asset_materialization_events()) == 1
    assert result.get_asset_check_evaluations() == []


def test_a_failed_transfer_has_no_evaluation_where_it_is_left_out(lab: "Lab") -> None:
    lab.client.fail("transfer", TransferFailed("1 object failed", result=samples.result(failed=1)))
    result = lab.run(paris(), WITHOUT)
    assert not result.success
    assert result.get_asset_check_evaluations() == []


@FORMS
def test_it_cannot_run_alone_and_nothing_is_copied(lab: "Lab", form: Form) -> None:
    result = lab.run(form(), ALONE)
    assert not result.success
    (failed,) = (event for event in result.all_events if event.event_type_value == "STEP_FAILURE")
    said = failed.step_failure_data.user_failure_data
    assert said is not None
    assert "materialize paris" in (said.description or "")
    assert not {"transfer", "run"} & set(lab.client.verbs)
