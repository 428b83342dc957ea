"""Transfers that free the worker's slot while bytes move."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from inspect import signature
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    TaskDeferred,
)
from tests.fake_client import NODE
from tests.operators.conftest import FakeHook
from tests.transfer import samples

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayUnreachable,
    TransferFailed,
)
from skyplane_orchestration.operators import SkyplaneTransferOperator
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer
from skyplane_orchestration.triggers.transfer import SkyplaneTransferTrigger

ENDS: dict[str, Any] = {"source_url": "s3://here/a/", "destination_url": "gs://there/a/"}
START = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
def context(context: Any) -> Any:
    context["ti"].start_date = START
    return context


def deferred(operator: SkyplaneTransferOperator, context: Any) -> SkyplaneTransferTrigger:
    with pytest.raises(TaskDeferred) as found:
        operator.execute(context)
    assert found.value.method_name == "execute_complete"
    trigger = found.value.trigger
    assert isinstance(trigger, SkyplaneTransferTrigger)
    return trigger


def event(trigger: SkyplaneTransferTrigger, end: str, **more: Any) -> dict[str, Any]:
    return {"end": end, "has_answered": True, "message": "", "watched": trigger.watched, **more}


def one_task(**more: Any) -> SkyplaneTransferOperator:
    return SkyplaneTransferOperator(task_id="copy", deferrable=True, **ENDS, **more)


def test_the_default_is_that_of_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not SkyplaneTransferOperator(task_id="copy", **ENDS).deferrable


@pytest.mark.parametrize("interval_s", [0, -1.0])
def test_an_interval_that_would_never_pause_fails_the_parse(interval_s: float) -> None:
    with pytest.raises(ConfigurationInvalid, match="poll_interval_s"):
        one_task(poll_interval_s=interval_s)


def test_a_task_submits_and_defers(hook: FakeHook, context: Any) -> None:
    trigger = deferred(one_task(), context)
    assert hook.clients["copy"].verbs == ["begin", "follow"]
    watched = WatchedTransfer.from_dict(trigger.watched)
    assert watched.owns_fleet
    assert watched.submitted.lead == NODE
    assert watched.deadline_unix_s is None


def test_on_a_fleet_of_the_group_the_fleet_stays(hook: FakeHook, context: Any) -> None:
    fleet = hook.client(context, "default")._fleet().to_dict()
    operator = one_task(fleet=fleet)
    trigger = deferred(operator, context)
    assert not WatchedTransfer.from_dict(trigger.watched).owns_fleet


def test_nothing_to_copy_does_not_defer(hook: FakeHook, context: Any) -> None:
    hook.client(context, "copy").is_unchanged = True
    assert one_task().execute(context)["state"] == "succeeded"


def test_a_transfer_of_a_few_seconds_ends_in_its_slot(hook: FakeHook, context: Any) -> None:
    """Airflow fails a task whose trigger fires while the scheduler still records the deferral."""
    client = hook.client(context, "copy")
    client.early_end = "ended"
    assert one_task().execute(context)["state"] == "succeeded"
    assert client.verbs == ["begin", "follow", "finish"]
    assert client.of("follow") == [15.0]


@pytest.mark.parametrize("seconds", [0, 2.5, "40"])
def test_the_time_in_the_slot_is_an_argument(
    hook: FakeHook, context: Any, seconds: float | str
) -> None:
    deferred(one_task(defer_after_s=seconds), context)
    assert hook.clients["copy"].of("follow") == [float(seconds)]


def test_a_negative_time_in_the_slot_fails_the_parse() -> None:
    with pytest.raises(ConfigurationInvalid, match="defer_after_s is -1; give 0 or more seconds"):
        one_task(defer_after_s=-1)


@pytest.mark.parametrize("end", ["silent", "budget", "deadline"])
def test_a_watch_in_the_slot_ends_as_that_of_the_trigger(
    hook: FakeHook, context: Any, end: Any
) -> None:
    client = hook.client(context, "copy")
    client.early_end = end
    one_task().execute(context)
    assert client.verbs == ["begin", "follow", "finish"]


def test_an_error_of_the_watch_in_the_slot_is_left_to_the_end(hook: FakeHook, context: Any) -> None:
    client = hook.client(context, "copy")
    client.fail("follow", GatewayUnreachable("no way"))
    one_task().execute(context)
    assert client.verbs == ["begin", "follow", "finish"]


@pytest.mark.parametrize("cancels", [True, False])
@pytest.mark.parametrize("has_fleet", [True, False])
def test_on_kill_works_in_the_first_seconds(
    hook: FakeHook, context: Any, cancels: bool, has_fleet: bool
) -> None:
    name = "default" if has_fleet else "copy"
    client = hook.client(context, name)
    more = {"fleet": client._fleet().to_dict()} if has_fleet else {}
    operator = one_task(cancel_on_kill=cancels, **more)
    client.meanwhile = operator.on_kill
    with pytest.raises(AirflowException, match="was killed"):
        operator.execute(context)
    assert client.verbs.count("cancel") == cancels
    assert client.verbs.count("teardown") == (cancels and not has_fleet)


def test_the_trigger_survives_a_restart_of_the_triggerer(hook: FakeHook, context: Any) -> None:
    trigger = deferred(one_task(poll_interval_s=7.0, cancel_on_kill=False), context)
    path, arguments = trigger.serialize()
    assert path == f"{SkyplaneTransferTrigger.__module__}.SkyplaneTransferTrigger"
    again = SkyplaneTransferTrigger(**json.loads(json.dumps(arguments)))
    assert set(arguments) == {*signature(SkyplaneTransferTrigger).parameters}
    assert [getattr(again, name) for name in arguments] == [
        getattr(trigger, name) for name in arguments
    ]


def test_the_end_of_the_transfer_gives_the_result(hook: FakeHook, context: Any) -> None:
    operator = one_task()
    trigger = deferred(operator, context)
    result = operator.execute_complete(context, event(trigger, "ended"))
    assert result["state"] == "succeeded"
    assert hook.clients["copy"].verbs == ["begin", "follow", "finish"]


def test_a_failure_raises_and_leaves_the_result_to_callbacks(hook: FakeHook, context: Any) -> None:
    operator = one_task()
    trigger = deferred(operator, context)
    failed = samples.result(state="failed", failed=1)
    hook.clients["copy"].fail("finish", TransferFailed("no", result=failed, is_permanent=True))
    with pytest.raises(AirflowFailException):
        operator.execute_complete(context, event(trigger, "ended"))
    assert context["pushed"]["failed_transfer"]["state"] == "failed"


def test_a_lead_that_answers_the_worker_is_watched_again(hook: FakeHook, context: Any) -> None:
    operator = one_task()
    trigger = deferred(operator, context)
    hook.clients["copy"].still_runs = True
    with pytest.raises(TaskDeferred):
        operator.execute_complete(context, event(trigger, "silent"))
    assert "finish" not in hook.clients["copy"].verbs


@pytest.mark.parametrize(("still_runs", "has_answered"), [(False, True), (True, False)])
def test_a_worker_follows_what_the_triggerer_cannot(
    hook: FakeHook, context: Any, still_runs: bool, has_answered: bool
) -> None:
    operator = one_task()
    trigger = deferred(operator, context)
    hook.clients["copy"].still_runs = still_runs
    operator.execute_complete(context, event(trigger, "silent", has_answered=has_answered))
    assert hook.clients["copy"].verbs[-1] == "finish"


def test_the_deadline_leaves_time_to_stop_the_transfer(hook: FakeHook, context: Any) -> None:
    operator = one_task(execution_timeout=timedelta(seconds=100))
    trigger = deferred(operator, context)
    assert trigger.watched["deadline_unix_s"] == START.timestamp() + 80
    stopped = TransferFailed("stopped", result=samples.result(state="failed", failed=1))
    hook.clients["copy"].fail("finish", stopped)
    with pytest.raises(AirflowException):
        operator.execute_complete(context, event(trigger, "deadline"))
