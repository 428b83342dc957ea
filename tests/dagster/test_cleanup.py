"""Runs that end without their teardown: what the sensor takes down, what goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from tests.dagster.conftest import FakeResource, paris

from skyplane_orchestration.dagster import (
    build_skyplane_cleanup_sensor,
    build_skyplane_sweep_sensor,
)
from skyplane_orchestration.errors import StoreUnavailable, TeardownIncomplete

if TYPE_CHECKING:
    from tests.dagster.conftest import Lab

JOB = "copy"


def copy_job(name: str) -> dg.JobDefinition:
    """Built anew for every execution, as by a process of its own."""
    definitions = dg.Definitions(
        assets=[paris()],
        jobs=[dg.define_asset_job(JOB, executor_def=dg.in_process_executor)],
        resources={"skyplane": FakeResource(deployment="test", name=name)},
    )
    return definitions.resolve_job_def(JOB)


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral(tempdir=str(tmp_path)) as made:
        yield made


def execute(
    lab: Lab, instance: dg.DagsterInstance, again: dg.ReexecutionOptions | None = None
) -> dg.JobExecutionResult:
    job = dg.build_reconstructable_job(
        "tests.dagster.test_cleanup", "copy_job", (lab.resource.name,)
    )
    return dg.execute_job(job, instance, raise_on_error=False, reexecution_options=again)


class InterruptedBefore(dg.InMemoryIOManager):
    """The run is terminated as soon as `provision` has ended."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def load_input(self, context: dg.InputContext) -> Any:
        if context.name == "fleet":
            raise dg.DagsterExecutionInterruptedError
        return super().load_input(context)


def terminate(lab: Lab, instance: dg.DagsterInstance) -> str:
    """A run that ends between provision and transfer; its id."""
    result = lab.materialize(paris(), instance=instance, io_manager=InterruptedBefore())
    assert lab.client.verbs[-1] == "provision"
    assert not result.success
    return result.run_id


def tick(lab: Lab, instance: dg.DagsterInstance, cursor: str | None = None) -> str | None:
    """Evaluates the sensor; its new cursor."""
    with dg.build_sensor_context(
        instance, cursor=cursor, resources={"skyplane": lab.resource}
    ) as context:
        data = build_skyplane_cleanup_sensor().evaluate_tick(context)
        assert data.run_requests == []
        return data.cursor


def test_a_run_terminated_between_provision_and_transfer_leaves_nothing_after_a_tick(
    lab: Lab, instance: dg.DagsterInstance
) -> None:
    terminate(lab, instance)
    cursor = tick(lab, instance)
    assert lab.client.keys("teardown") == lab.client.keys("provision")
    tick(lab, instance, cursor)
    assert len(lab.client.keys("teardown")) == 1


def test_a_run_whose_process_was_killed_is_found_by_its_tags(
    lab: Lab, instance: dg.DagsterInstance
) -> None:
    """What Dagster's run monitoring does with it, or a user who terminates it by force."""
    run_id = terminate(lab, instance)
    run = instance.get_run_by_id(run_id)
    assert run is not None
    instance.delete_run(run_id)
    instance.add_run(run.with_status(dg.DagsterRunStatus.STARTED))
    tick(lab, instance)
    assert lab.client.keys("teardown") == []
    instance.report_run_canceled(run.with_status(dg.DagsterRunStatus.CANCELING))
    tick(lab, instance)
    assert lab.client.keys("teardown") == lab.client.keys("provision")


def test_runs_of_another_deployment_are_left_alone(lab: Lab, instance: dg.DagsterInstance) -> None:
    terminate(lab, instance)
    lab.resource = FakeResource(deployment="other", name=lab.resource.name)
    assert tick(lab, instance) is None
    assert lab.client.keys("teardown") == []


def test_a_failed_teardown_is_retried_at_the_next_tick(
    lab: Lab, instance: dg.DagsterInstance
) -> None:
    terminate(lab, instance)
    lab.client.fail("teardown", TeardownIncomplete("gateway 7 is still there"))
    with pytest.raises(dg.Failure, match=r"paris of run .*: teardown-incomplete: gateway 7"):
        tick(lab, instance)
    assert tick(lab, instance) is not None
    assert len(lab.client.keys("teardown")) == 2


def test_a_fleet_that_a_re_execution_uses_is_left_alone(
    lab: Lab, instance: dg.DagsterInstance
) -> None:
    first = terminate(lab, instance)
    instance.create_run_for_job(
        copy_job(lab.resource.name),
        root_run_id=first,
        parent_run_id=first,
        tags={"dagster/root_run_id": first, "dagster/parent_run_id": first},
    )
    assert tick(lab, instance) is None
    assert lab.client.keys("teardown") == []


def test_a_re_execution_from_failure_resumes_the_transfer(
    lab: Lab, instance: dg.DagsterInstance
) -> None:
    lab.client.fail("transfer", StoreUnavailable("later"))
    first = execute(lab, instance)
    assert not first.success
    again = execute(lab, instance, dg.ReexecutionOptions.from_failure(first.run_id, instance))
    assert again.success
    assert again.run_id != first.run_id
    assert lab.client.keys("provision") == lab.client.keys("transfer")[:1]
    tries = lab.client.of("transfer")
    assert len(tries) == 2
    assert tries[0] == tries[1]
    identities = set(lab.client.of("identity"))
    assert {identity.run for identity in identities} == {first.run_id}
    third = execute(lab, instance, dg.ReexecutionOptions(again.run_id))
    assert third.success
    assert len(set(lab.client.keys("provision"))) == 1


def test_the_sensors_run_by_default() -> None:
    running = dg.DefaultSensorStatus.RUNNING
    assert build_skyplane_cleanup_sensor().default_status == running
    assert build_skyplane_sweep_sensor().default_status == running
