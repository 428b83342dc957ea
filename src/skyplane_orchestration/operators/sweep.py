"""`SkyplaneSweepOperator`: the last net, for what nobody will come back for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid, TeardownIncomplete
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.base import SkyplaneOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: A place to sweep: a URL, a location, or its `to_dict()`.
Destination = str | Location | Mapping[str, Any]

#: Rows of each list that go to XCom.
_MOST_ROWS: Final = 100


class SkyplaneSweepOperator(SkyplaneOperator):
    """Removes fleets that are past their end or have lost their gateways, and what failed
    transfers left at destinations once nobody may go on with them any more.

    Fails when something that should be gone is left; the log has a line for each.

    Args:
        report_only: only say what would be removed.
        older_than_s: also living fleets of the deployment made longer ago than this.
        destinations: where transfers write to, or folders above; each a URL, a `Location`
            or its `to_dict()`.
        destination_conn_id: Airflow connection with the credentials of those that name none
            themselves; the worker's own when None.
        destination_endpoint: address of the S3-compatible service of those that are URLs.
        orphaned_uploads: abort old uploads there that no journal names too.
        recursive: look for journals in all folders below, which lists every object there.

    Returns `SweepReport.to_dict()` with the first 100 rows of each list.
    """

    template_fields: Sequence[str] = (
        *SkyplaneOperator.template_fields,
        "destinations",
        "destination_conn_id",
        "destination_endpoint",
    )
    template_fields_renderers = {"destinations": "json"}  # noqa: RUF012 - Airflow's own declaration

    def __init__(
        self,
        *,
        report_only: bool = False,
        older_than_s: float | None = None,
        destinations: Sequence[Destination] = (),
        destination_conn_id: str | None = None,
        destination_endpoint: str = "",
        orphaned_uploads: bool = False,
        recursive: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.report_only = report_only
        self.older_than_s = older_than_s
        self.destinations = destinations
        self.destination_conn_id = destination_conn_id
        self.destination_endpoint = destination_endpoint
        self.orphaned_uploads = orphaned_uploads
        self.recursive = recursive

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.sweep(
            destinations=self._places(),
            orphaned_uploads=self.orphaned_uploads,
            recursive=self.recursive,
            dry_run=self.report_only,
            older_than_s=self.older_than_s,
        )
        for fleet in report.orphans:
            self.log.info("fleet %s: %s", fleet.key, fleet.reason)
        for place in report.places:
            for transfer in place.transfers:
                self.log.info(
                    "%s: journals of transfer %s in %s, %d uploads %s",
                    transfer.outcome,
                    transfer.transfer_key,
                    transfer.folder,
                    len(transfer.uploads),
                    transfer.reason,
                )
            for upload in place.uploads[:_MOST_ROWS]:
                self.log.info("%s: upload of %s %s", upload.outcome, upload.url, upload.reason)
        self.log.info("%s", report.summary)
        for line in report.left:
            self.log.error("still there: %s", line)
        if report.left:
            raise TeardownIncomplete(report.failure)
        return report.to_dict(_MOST_ROWS)

    def _places(self) -> list[Location]:
        from skyplane_orchestration.hooks.skyplane import credential_ref

        # A template that renders to one URL is one destination, not its letters.
        given = [self.destinations] if isinstance(self.destinations, str) else self.destinations
        made = []
        for each in given:
            if isinstance(each, Mapping):
                place = Location.from_dict(each)
            elif isinstance(each, str):
                place = Location(each, endpoint_url=self.destination_endpoint)
            elif isinstance(each, Location):
                place = each
            else:
                raise ConfigurationInvalid(f"a destination is a URL or a Location, not {each!r}")
            if not place.credential_ref:
                reference = credential_ref(self.destination_conn_id)
                place = Location(
                    place.url, place.region, place.endpoint_url, reference, place.options
                )
            made.append(place)
        return made
