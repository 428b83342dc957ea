"""`build_skyplane_cleanup_sensor`: ends the gateways of failed and terminated runs.

A run that is terminated or killed has no op and no hook that could do it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dagster as dg

from skyplane_orchestration.dagster.partitions import AnyContext
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client

#: Tags of a run: the deployment of its gateways, and the key of each fleet.
_DEPLOYMENT_TAG: Final = "skyplane/deployment"
_FLEET_TAG: Final = "skyplane/fleet/"

_FAILED: Final = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_ENDED: Final = (*_FAILED, dg.DagsterRunStatus.SUCCESS)
_NOT_ENDED: Final = tuple(status for status in dg.DagsterRunStatus if status not in _ENDED)


def tag_run(context: AnyContext, client: Client) -> None:
    """Tag the run with its fleet before the fleet exists; the sensor finds the fleet by it."""
    identity = client.identity
    tags = {_DEPLOYMENT_TAG: identity.deployment, _FLEET_TAG + identity.fleet_key(): identity.owner}
    context.instance.add_run_tags(context.run.run_id, tags)


@checks_arguments
def build_skyplane_cleanup_sensor(
    name: str = "skyplane_cleanup",
    *,
    resource_key: str = "skyplane",
    minimum_interval_seconds: int = 30,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Make a sensor that ends the gateways of failed and terminated runs; it launches no run.

    It does not touch a fleet that a re-execution uses, nor journals and uploads; see
    `build_skyplane_sweep_sensor`. A tick that cannot end a gateway fails; the next one tries again.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Ends the gateways of failed and terminated runs.",
    )
    def cleanup(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        resource = getattr(context.resources, resource_key)
        client = resource.client(RunIdentity(resource.deployment, name, "cleanup"))
        # The earliest end of a run that may have gateways: the cursor, or the hard end.
        begin = datetime.fromtimestamp(time.time() - resource.hard_end_s, UTC)
        if context.cursor:
            begin = max(datetime.fromisoformat(context.cursor), begin)
        records = context.instance.get_run_records(
            dg.RunsFilter(
                statuses=_FAILED,
                tags={_DEPLOYMENT_TAG: resource.deployment},
                updated_after=begin,
            ),
            order_by="update_timestamp",
            ascending=True,
        )
        runs = [record.dagster_run for record in records]
        done = [run for run in runs if not _is_re_executed(context.instance, run)]
        errors = [line for run in done for line in _tear_down(context, client, run)]
        if errors:
            raise dg.Failure("; ".join(errors))
        if records and done == runs:
            context.update_cursor(records[-1].update_timestamp.isoformat())
        return dg.SkipReason(f"no gateways are left of {counted(len(done), 'run')}")

    return cleanup


def _is_re_executed(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether another run with the same first run, and so the same fleet, has not ended."""
    root = run.root_run_id or run.run_id
    family = (
        dg.RunsFilter(run_ids=[root], statuses=_NOT_ENDED),
        # Dagster's own tag of a re-execution.
        dg.RunsFilter(tags={"dagster/root_run_id": root}, statuses=_NOT_ENDED),
    )
    return any(instance.get_runs_count(each) for each in family)


def _tear_down(
    context: dg.SensorEvaluationContext, client: Client, run: dg.DagsterRun
) -> list[str]:
    """End the gateways of a run; a line for each fleet that could not be ended."""
    errors: list[str] = []
    for tag, owner in run.tags.items():
        if not tag.startswith(_FLEET_TAG):
            continue
        try:
            stopped = client.teardown(tag.removeprefix(_FLEET_TAG)).stopped
        except SkyplaneError as error:
            errors.append(f"{owner} of run {run.run_id}: {error.code}: {error}")
        else:
            ended = counted(len(stopped), "gateway")
            context.log.info("%s of run %s: %s ended", owner, run.run_id, ended)
    return errors
