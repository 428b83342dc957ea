"""`build_skyplane_sweep_sensor`: removes what interrupted runs left, now and then."""

from __future__ import annotations

from typing import Final

import dagster as dg

from skyplane_orchestration.identity import RunIdentity

_EVERY_S: Final = 900


def build_skyplane_sweep_sensor(
    name: str = "skyplane_sweep",
    *,
    resource_key: str = "skyplane",
    minimum_interval_seconds: int = _EVERY_S,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """A sensor that sweeps the resource's deployment and launches nothing.

    Gateways end by themselves when nobody renews their lease; the sweep removes the records
    that they leave, and on clouds their instances. Its tick fails when something is left.
    """

    @dg.sensor(
        name=name,
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        required_resource_keys={resource_key},
        description="Removes fleets of gateways that nobody will come back for.",
    )
    def sweep(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        resource = getattr(context.resources, resource_key)
        client = resource.client(RunIdentity(resource.deployment, name, "sweep"))
        report = client.sweep()
        for orphan in report.orphans:
            context.log.info("fleet %s: %s", orphan.key, orphan.error or orphan.reason)
        if report.failed:
            raise dg.Failure(f"{len(report.failed)} fleets could not be removed; see the log")
        return dg.SkipReason(f"{len(report.orphans)} fleets removed, {len(report.kept)} kept")

    return sweep
