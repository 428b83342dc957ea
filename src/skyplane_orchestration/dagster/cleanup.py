"""`build_skyplane_cleanup_sensor`: takes down what ended runs have left, soon.

A run that is terminated, or whose process is killed, has no step and no hook left to do it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import dagster as dg

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.identity import RunIdentity

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.provision.base import TeardownReport

_LOGGED_LINES: Final = 40

#: Tags of a run: which deployment its gateways belong to, and the key of each fleet.
_DEPLOYMENT_TAG: Final = "skyplane/deployment"
_FLEET_TAG: Final = "skyplane/fleet/"

#: Dagster's own, of a run that executes another one again.
_ROOT_RUN_TAG: Final = "dagster/root_run_id"

_FAILED: Final = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_ENDED: Final = (*_FAILED, dg.DagsterRunStatus.SUCCESS)
_UNENDED: Final = tuple(status for status in dg.DagsterRunStatus if status not in _ENDED)


def note_fleet(context: dg.OpExecutionContext, client: Client) -> None:
    """Tag the run with its fleet, before the fleet is there: the sensor finds it by this."""
    identity = client.identity
    tags = {_DEPLOYMENT_TAG: identity.deployment, _FLEET_TAG + identity.fleet_key(): identity.owner}
    context.instance.add_run_tags(context.run_id, tags)


def log_teardown(log: dg.DagsterLogManager, report: TeardownReport, level: int) -> None:
    """The ends of the gateways' logs at that level, and how many gateways there were."""
    for node, tail in sorted(report.log_tails.items()):
        lines = tail.splitlines()[-_LOGGED_LINES:]
        log.log(level, "end of the log of %s:\n%s", node, "\n".join(lines))
    log.info("%s ended", counted(len(report.stopped), "gateway"))


def build_skyplane_cleanup_sensor(
    name: str = "skyplane_cleanup",
    *,
    resource_key: str = "skyplane",
    minimum_interval_seconds: int = 30,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """A sensor that takes down the gateways of runs that failed or were terminated.

    Launches nothing. It leaves alone what a re-execution of the run uses. What a transfer has
    begun at its destination stays for a re-execution; `build_skyplane_sweep_sensor` removes
    it in time. A tick that cannot take a fleet down fails, and the next one tries again.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Takes down the gateways of runs that failed or were terminated.",
    )
    def cleanup(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        resource = getattr(context.resources, resource_key)
        client = resource.client(RunIdentity(resource.deployment, name, "cleanup"))
        records = context.instance.get_run_records(
            dg.RunsFilter(
                statuses=_FAILED,
                tags={_DEPLOYMENT_TAG: resource.deployment},
                updated_after=_begin(context.cursor, resource.hard_end_s),
            ),
            order_by="update_timestamp",
            ascending=True,
        )
        runs = [record.dagster_run for record in records]
        over = [run for run in runs if not _is_executed_again(context.instance, run)]
        left = [line for run in over for line in _take_down(context, client, run)]
        if left:
            raise dg.Failure("; ".join(left))
        if records and over == runs:
            context.update_cursor(records[-1].update_timestamp.isoformat())
        return dg.SkipReason(f"{len(over)} runs have no gateways any more")

    return cleanup


def _begin(cursor: str | None, hard_end_s: float) -> datetime:
    """Runs that ended before have no gateways: the cursor, or the longest life of a fleet."""
    earliest = datetime.fromtimestamp(time.time() - hard_end_s, UTC)
    return max(datetime.fromisoformat(cursor), earliest) if cursor else earliest


def _is_executed_again(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether a run that shares its fleets, by its first run, has not ended."""
    root = run.root_run_id or run.run_id
    family = (
        dg.RunsFilter(run_ids=[root], statuses=_UNENDED),
        dg.RunsFilter(tags={_ROOT_RUN_TAG: root}, statuses=_UNENDED),
    )
    return any(instance.get_runs_count(each) for each in family)


def _take_down(
    context: dg.SensorEvaluationContext, client: Client, run: dg.DagsterRun
) -> list[str]:
    """End the gateways of a run; a line for each fleet of which something is left."""
    left: list[str] = []
    for tag, owner in run.tags.items():
        if not tag.startswith(_FLEET_TAG):
            continue
        try:
            stopped = client.teardown(tag.removeprefix(_FLEET_TAG)).stopped
        except SkyplaneError as error:
            left.append(f"{owner} of run {run.run_id}: {error.code}: {error}")
        else:
            ended = counted(len(stopped), "gateway")
            context.log.info("%s of run %s: %s ended", owner, run.run_id, ended)
    return left
