"""Tasks that need a fleet wait while the deployment has too many."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, TaskDeferred
from tests.operators.conftest import FakeHook

from skyplane_orchestration.errors import TooManyFleets
from skyplane_orchestration.operators import (
    SkyplanePlanOperator,
    SkyplaneProvisionOperator,
    SkyplaneTransferGroup,
    SkyplaneTransferOperator,
)
from skyplane_orchestration.operators.fleet_job import SkyplaneFleetOperator

ENDS: dict[str, Any] = {"source_url": "s3://src/", "destination_url": "s3://dst/"}
FULL = TooManyFleets.of("prod", 2, ("aa", "bb"))
NEVER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def context(context: Any) -> Any:
    context["ti"].start_date = NEVER
    return context


def provision(hook: FakeHook, context: Any, **more: Any) -> SkyplaneFleetOperator:
    plan = SkyplanePlanOperator(task_id="plan", **ENDS).execute(context)
    return SkyplaneProvisionOperator(task_id="t", plan=plan, fleet_name="f", **ENDS, **more)


def one_task(hook: FakeHook, context: Any, **more: Any) -> SkyplaneFleetOperator:
    return SkyplaneTransferOperator(task_id="t", fleet_name="f", **ENDS, **more)


def waits(said: str) -> set[str]:
    """How the lines on a wait begin; Airflow 2 logs each of them twice here."""
    return set(re.findall(r"(waiting|this task has waited for [^:]*): deployment", said))


FORMS = pytest.mark.parametrize("form", [provision, one_task])


@FORMS
def test_a_task_waits_in_its_slot_and_says_rarely_for_which_fleets(
    hook: FakeHook, context: Any, task_log: Callable[[], str], form: Callable[..., Any]
) -> None:
    operator = form(hook, context)
    hook.client(context, "f").full = [FULL] * 6
    assert operator.execute(context)
    said = task_log()
    assert waits(said) == {"waiting", "this task has waited for 2 min 0 s"}
    assert "which is 2, with the fleets aa, bb; wait until one of them has ended" in said


@FORMS
def test_a_deferrable_task_frees_its_slot_and_looks_again(
    hook: FakeHook, context: Any, task_log: Callable[[], str], form: Callable[..., Any]
) -> None:
    operator = form(hook, context, deferrable=True)
    client = hook.client(context, "f")
    client.full = [FULL] * 6
    with pytest.raises(TaskDeferred) as first:
        operator.execute(context)
    deferral = first.value
    for looks in range(1, 6):
        assert (deferral.method_name, deferral.timeout) == ("look_again", None)
        assert deferral.kwargs is not None
        assert deferral.kwargs["looks"] == looks
        assert deferral.kwargs["waited_s"] > looks * 20
        with pytest.raises(TaskDeferred) as again:
            operator.look_again(context, {}, **deferral.kwargs)
        deferral = again.value
    assert len(waits(task_log())) == 2
    assert not {"provision", "begin"} & set(client.verbs), "it lists nothing to look again"
    finished = form(hook, context)
    assert finished.look_again(context, {}, **deferral.kwargs or {})


@FORMS
def test_a_wait_ends_before_the_execution_timeout(
    hook: FakeHook, context: Any, form: Callable[..., Any]
) -> None:
    """A retry waits anew."""
    operator = form(hook, context, deferrable=True, execution_timeout=timedelta(minutes=5))
    hook.client(context, "f").full = [FULL]
    context["ti"].start_date = datetime(2026, 1, 1, tzinfo=UTC)
    with pytest.raises(AirflowException, match="too-many-fleets: deployment 'prod'") as caught:
        operator.execute(context)
    assert not isinstance(caught.value, AirflowFailException)


def test_a_trigger_of_airflow_waits_about_half_a_minute(hook: FakeHook, context: Any) -> None:
    operator = one_task(hook, context, deferrable=True)
    hook.client(context, "f").full = [FULL]
    with pytest.raises(TaskDeferred) as deferral:
        operator.execute(context)
    path, arguments = deferral.value.trigger.serialize()
    assert path.endswith("triggers.temporal.DateTimeTrigger")
    wait_s = (arguments["moment"] - datetime.now(UTC)).total_seconds()
    assert 0 < wait_s < 40


def test_a_group_waits_as_its_transfer_does() -> None:
    from airflow.providers.common.compat.sdk import DAG

    with DAG(dag_id="d", schedule=None):
        group = SkyplaneTransferGroup(deferrable=True, **ENDS)
    assert (group.provision.deferrable, group.transfer.deferrable) == (True, True)
