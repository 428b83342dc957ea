"""`SkyplaneProvisionOperator`: the gateways of a plan, as a setup task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import where_gateways_run
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.operators.base import SkyplaneOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from skyplane_orchestration.client import Client


class SkyplaneProvisionOperator(SkyplaneOperator):
    """Finds or creates the fleet of its `fleet_name` in this run.

    A failure takes down what had come up before the task ends.

    Args:
        plan: what `SkyplanePlanOperator` returned (its `.output`).

    Returns the fleet, `Fleet.to_dict()`: addresses and fingerprints, never a secret.
    """

    template_fields: Sequence[str] = (*SkyplaneOperator.template_fields, "plan")
    template_fields_renderers = {"plan": "json"}  # noqa: RUF012 - Airflow's own declaration

    def __init__(self, *, plan: Mapping[str, Any] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan: Any = plan  # A document, once rendered.

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        fleet = client.provision(TransferPlan.from_dict(self.plan))
        self.log.info(
            "fleet %s: %s up in %.1f s; %s",
            fleet.key,
            counted(len(fleet.gateways), "gateway"),
            fleet.provision_s,
            where_gateways_run(fleet.provisioner),
        )
        return fleet.to_dict()
