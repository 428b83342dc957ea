"""`SkyplaneTeardownOperator`: ends the gateways of a fleet, as a teardown task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.operators.arguments import Document
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.transfer.task_log import log_teardown

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client


class SkyplaneTeardownOperator(SkyplaneOperator):
    """Cancels the transfers of a fleet, logs the ends of the gateways' logs, ends the gateways.

    Without a fleet document, the task finds the fleet by its key, which is made from the run
    and `fleet_name`. It fails if a gateway is left.

    Args:
        fleet: `.output` of `SkyplaneProvisionOperator`, or None.

    Returns the nodes that still ran.
    """

    template_fields_renderers = {"fleet": "json"}  # noqa: RUF012 - Airflow's own declaration

    fleet: Mapping[str, Any] | None

    def __init__(self, *, fleet: Document | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.teardown(self._fleet() or client.identity.fleet_key())
        log_teardown(self.log, report)
        return {"stopped": list(report.stopped)}

    def on_kill(self) -> None:
        """Continue: the teardown takes seconds, and no other task would do it."""

    def _fleet(self) -> Fleet | None:
        if not self.fleet:
            return None
        try:
            return Fleet.from_dict(self.fleet)
        except ConfigurationInvalid as error:
            self.log.warning("%s; the fleet is found by its key", error)
            return None
