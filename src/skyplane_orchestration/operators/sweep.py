"""`SkyplaneSweepOperator`: removes abandoned fleets, journals and uploads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.model.location import Location, named_location
from skyplane_orchestration.operators.arguments import Flag, Number
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.transfer.task_log import log_sweep

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: A URL, a location, or its `to_dict()`.
Destination = str | Location | Mapping[str, Any]


class SkyplaneSweepOperator(SkyplaneOperator):
    """Removes abandoned fleets, and expired journals and uploads of failed transfers.

    A fleet is abandoned if it is past its hard end or has no running gateway. The task fails
    if something could not be removed; the log has a line for each.

    Args:
        report_only: report what would be removed; remove nothing.
        older_than_s: also remove running fleets that are older.
        destinations: destinations of transfers, or folders above; each a URL, a `Location` or
            its `to_dict()`.
        destination_conn_id: Airflow connection for destinations without credentials; None:
            the worker's own credentials.
        destination_endpoint: address of the S3-compatible service, for destinations that are
            URLs.
        orphaned_uploads: also abort old uploads that no journal names.
        recursive: sweep all folders below the destinations; this lists all their objects.

    Returns `SweepReport.to_dict()` with the first 100 rows of each list.
    """

    template_fields_renderers = {"destinations": "json"}  # noqa: RUF012 - Airflow's own declaration

    report_only: bool
    older_than_s: float | None
    destinations: Sequence[Destination]
    destination_conn_id: str | None
    destination_endpoint: str
    orphaned_uploads: bool
    recursive: bool

    def __init__(
        self,
        *,
        report_only: Flag = False,
        older_than_s: Number = None,
        destinations: Sequence[Destination] | str = (),
        destination_conn_id: str | None = None,
        destination_endpoint: str = "",
        orphaned_uploads: Flag = False,
        recursive: Flag = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.sweep(
            destinations=self._locations(),
            orphaned_uploads=self.orphaned_uploads,
            recursive=self.recursive,
            dry_run=self.report_only,
            older_than_s=self.older_than_s,
        )
        log_sweep(self.log, report)
        if report.left:
            raise TeardownIncomplete(report.failure)
        # Rows of each list in XCom.
        return report.to_dict(most_rows=100)

    def _locations(self) -> list[Location]:
        from skyplane_orchestration.hooks.credential_refs import credential_ref

        reference = credential_ref(self.destination_conn_id)
        locations = [location_of(one, self.destination_endpoint) for one in self.destinations]
        return [
            self.hook.placed(
                place if place.credential_ref else replace(place, credential_ref=reference)
            )
            for place in locations
        ]


def location_of(destination: Destination, endpoint: str) -> Location:
    """The location; `endpoint` is that of a URL. Raises InvalidLocation."""
    if isinstance(destination, Mapping):
        return Location.from_dict(destination)
    if isinstance(destination, str):
        return named_location(
            {"url": destination, "endpoint_url": endpoint},
            {"url": "destinations", "endpoint_url": "destination_endpoint"},
        )
    return destination
