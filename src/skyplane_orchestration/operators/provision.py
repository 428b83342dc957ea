"""`SkyplaneProvisionOperator`: starts the gateways of a plan, as a setup task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.transfer.task_log import log_fleet

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from skyplane_orchestration.client import Client


class SkyplaneProvisionOperator(SkyplaneOperator):
    """Finds or creates the fleet of `fleet_name` in this run.

    If the task fails, it first ends the gateways that it has started.

    Args:
        plan: `.output` of `SkyplanePlanOperator`.

    Returns the fleet, `Fleet.to_dict()`: addresses and fingerprints, but no secret.
    """

    template_fields: Sequence[str] = (*SkyplaneOperator.template_fields, "plan")
    template_fields_renderers = {"plan": "json"}  # noqa: RUF012 - Airflow's own declaration

    def __init__(self, *, plan: Mapping[str, Any] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan: Any = plan  # A document, once rendered.

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        fleet = client.provision(TransferPlan.from_dict(self.plan))
        log_fleet(self.log, fleet)
        return fleet.to_dict()
