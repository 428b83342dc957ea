"""`SkyplaneTeardownOperator`: takes a fleet down, as a teardown task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.operators.base import SkyplaneOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from skyplane_orchestration.client import Client


class SkyplaneTeardownOperator(SkyplaneOperator):
    """Cancels what runs on a fleet, logs the ends of the gateways' logs, deletes by tag.

    Needs no fleet document: when provision left none, the fleet is found by its key, which
    follows from the run and `fleet_name`. Fails when something of the fleet is left.

    Args:
        fleet: what `SkyplaneProvisionOperator` returned, or None.

    Returns the nodes that still ran.
    """

    template_fields: Sequence[str] = (*SkyplaneOperator.template_fields, "fleet")
    template_fields_renderers = {"fleet": "json"}  # noqa: RUF012 - Airflow's own declaration

    def __init__(self, *, fleet: Mapping[str, Any] | XComArg | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fleet: Any = fleet  # A document, once rendered.

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.teardown(self._fleet() or client.identity.fleet_key())
        self.log_tails(report.log_tails)
        self.log.info("%s ended", counted(len(report.stopped), "gateway"))
        return {"stopped": list(report.stopped)}

    def on_kill(self) -> None:
        """Go on: whoever ends this task wants the gateways gone too, and it takes seconds."""

    def _fleet(self) -> Fleet | None:
        if not self.fleet:
            return None
        try:
            return Fleet.from_dict(self.fleet)
        except ConfigurationInvalid as error:
            self.log.warning("%s; the fleet is looked for by its key", error)
            return None
