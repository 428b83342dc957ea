"""`SkyplaneProvisionOperator`: starts the gateways of a plan, as a setup task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.links.skyplane import SkyplaneConsoleLink, SkyplanePlanLink
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.operators.arguments import Document
from skyplane_orchestration.operators.fleet_job import SkyplaneFleetOperator
from skyplane_orchestration.report.task_documents import PLAN_IN_PLACE, PlanInPlace
from skyplane_orchestration.transfer.task_log import log_fleet

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client


class SkyplaneProvisionOperator(SkyplaneFleetOperator):
    """Finds or creates the fleet of `fleet_name` in this run.

    If the task fails, it first ends the gateways that it has started.

    If a cloud has no room for an instance, the task plans again, as `on_no_capacity` says. It
    needs the arguments of the plan task for that; without them it fails. The plan that runs is then
    also in the XCom `plan_in_place`, and on the page of the plan task.

    If the deployment has `max_active_fleets` other fleets, the task waits until one has ended.

    Args:
        plan: `.output` of `SkyplanePlanOperator`.
        deferrable: free the slot of the worker during such a wait. Default: `default_deferrable`
            of Airflow's section `operators`.

    Returns the fleet, `Fleet.to_dict()`: its plan, addresses and fingerprints, but no secret.
    """

    template_fields_renderers = {"job": "json", "plan": "json"}  # noqa: RUF012 - Airflow's
    operator_extra_links = (SkyplanePlanLink(), SkyplaneConsoleLink())

    needs_job = False
    plan: Mapping[str, Any]

    def __init__(self, *, plan: Document, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        job = (
            self.hook.placed_job(self.transfer_job())
            if self.job is not None or self.source_url
            else None
        )
        plan = TransferPlan.from_dict(self.plan)
        fleet = client.provision(plan, job=job, on_full=self.on_full(context))
        log_fleet(self.log, fleet)
        if fleet.plan.replaces:
            in_place = PlanInPlace(refused=plan, running=fleet.plan)
            self.push(context, PLAN_IN_PLACE, in_place.to_dict())
        return fleet.to_dict()
