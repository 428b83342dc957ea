"""`build_skyplane_sweep_sensor`: removes abandoned fleets, journals and uploads."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from skyplane_orchestration.dagster.placeholders import unpartitioned
from skyplane_orchestration.model.argument_checks import checks_arguments
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.transfer.task_log import log_sweep


@checks_arguments
def build_skyplane_sweep_sensor(
    name: str = "skyplane_sweep",
    *,
    resource_key: str = "skyplane",
    destinations: Sequence[Location] = (),
    orphaned_uploads: bool = False,
    recursive: bool = True,
    minimum_interval_seconds: int | None = None,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.RUNNING,
) -> dg.SensorDefinition:
    """Make a sensor that sweeps the resource's deployment; it launches no run.

    Gateways end by themselves when their lease ends, and the sweep removes their records.
    `build_skyplane_cleanup_sensor` ends them earlier. At `destinations` the sweep removes
    expired journals and uploads of failed transfers. A tick fails if something is left.

    Args:
        destinations: destinations of transfers, or folders above.
        orphaned_uploads: also abort old uploads that no journal names.
        recursive: sweep all folders below the destinations. This lists all their objects, and
            a tick must end within Dagster's time limit for sensors.
        minimum_interval_seconds: default: 15 minutes, or 6 hours with destinations.
    """
    places = [unpartitioned("destinations", place) for place in destinations]
    default_s = 21_600 if destinations else 900  # Listing destinations costs requests.

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds or default_s,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Removes abandoned fleets, journals and uploads.",
    )
    def sweep(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        resource = getattr(context.resources, resource_key)
        client = resource.client(RunIdentity(resource.deployment, name, "sweep"))
        report = client.sweep(
            destinations=places, orphaned_uploads=orphaned_uploads, recursive=recursive
        )
        log_sweep(context.log, report)
        if report.left:
            raise dg.Failure(report.failure)
        return dg.SkipReason(report.summary)

    return sweep
