"""A worker asks for no XCom that its task has not left: Airflow 3 would log an error for each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, XCom
from tests.operators.conftest import FakeHook
from tests.transfer import samples

from skyplane_orchestration.errors import StoreUnavailable, TransferFailed
from skyplane_orchestration.links.skyplane import SkyplanePlanLink
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTransferOperator,
)
from skyplane_orchestration.operators.base import SkyplaneOperator

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}
KEY: Any = SimpleNamespace(dag_id="d", run_id="r", task_id="t", map_index=-1)


@pytest.fixture(autouse=True)
def _no_xcom(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise AssertionError("XCom was asked")

    monkeypatch.setattr(XCom, "get_value", refuse)


def links_of(operator: SkyplaneOperator) -> list[bool]:
    """Whether each link of the operator leads somewhere."""
    return [bool(one.get_link(operator, ti_key=KEY)) for one in operator.operator_extra_links]


@pytest.mark.parametrize("outcome", ["success", "failure", "early failure"])
def test_the_links_of_a_transfer(hook: FakeHook, context: Any, outcome: str) -> None:
    operator = SkyplaneTransferOperator(task_id="t", **ENDS)
    if outcome == "success":
        operator.execute(context)
    else:
        failed = samples.result(failed=1) if outcome == "failure" else None
        hook.client(context, "t").fail("run", TransferFailed("no", result=failed))
        with pytest.raises(AirflowException):
            operator.execute(context)
    assert links_of(operator) == [outcome != "early failure"] * 2


def test_tasks_that_fail_to_plan_or_provision_have_no_links(hook: FakeHook, context: Any) -> None:
    hook.client(context, "default").fail("plan", StoreUnavailable("503"))
    operators: list[SkyplaneOperator] = [
        SkyplanePlanOperator(task_id="plan", **ENDS),
        SkyplaneProvisionOperator(task_id="provision", plan={}),
    ]
    for operator in operators:
        with pytest.raises(AirflowException):
            operator.execute(context)
        assert not any(links_of(operator))


def test_a_value_that_is_not_pushed_has_no_link(hook: FakeHook, context: Any) -> None:
    operator = SkyplanePlanOperator(task_id="p", do_xcom_push=False, **ENDS)
    operator.execute(context)
    assert SkyplanePlanLink().get_link(operator, ti_key=KEY) == ""
