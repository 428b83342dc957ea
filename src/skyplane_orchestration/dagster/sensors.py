"""`build_skyplane_sweep_sensor`: removes what interrupted runs left, now and then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import dagster as dg

from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.location import Location

#: Fleets are looked for here; destinations are listed, which costs requests.
_FLEETS_EVERY_S: Final = 900
_DESTINATIONS_EVERY_S: Final = 21_600


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
    """A sensor that sweeps the resource's deployment and launches nothing.

    Gateways end by themselves when nobody renews their lease; the sweep removes the records
    that they leave. `build_skyplane_cleanup_sensor` does not wait for that. At `destinations`
    it removes what failed transfers left, once nobody may go on with them any more. Its tick
    fails when something is left.

    Args:
        destinations: where transfers write to, or folders above.
        orphaned_uploads: abort old uploads there that no journal names too.
        recursive: look for journals in all folders below, which lists every object there:
            a tick must be done within Dagster's time limit for sensors.
        minimum_interval_seconds: a quarter of an hour when None, six hours with
            destinations.
    """
    default_s = _DESTINATIONS_EVERY_S if destinations else _FLEETS_EVERY_S

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds or default_s,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Removes abandoned fleets and unfinished transfers.",
    )
    def sweep(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        resource = getattr(context.resources, resource_key)
        client = resource.client(RunIdentity(resource.deployment, name, "sweep"))
        report = client.sweep(
            destinations=destinations, orphaned_uploads=orphaned_uploads, recursive=recursive
        )
        for fleet in report.orphans:
            context.log.info("fleet %s: %s", fleet.key, fleet.error or fleet.reason)
        for place in report.places:
            for row in place.transfers:
                context.log.info(
                    "%s: transfer %s in %s %s",
                    row.outcome,
                    row.transfer_key,
                    row.folder,
                    row.reason,
                )
        for line in report.left:
            context.log.error("still there: %s", line)
        if report.left:
            raise dg.Failure(report.failure)
        return dg.SkipReason(report.summary)

    return sweep
