"""`SkyplaneVerifyOperator`: compares the objects at two locations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import IllegalKeyRule
from skyplane_orchestration.errors import ObjectsDiffer
from skyplane_orchestration.formatting import size
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.job_arguments import texts
from skyplane_orchestration.operators.map_label import MAP_INDEX_TEMPLATE, label_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: Differences in the message of a failure; XCom has all that the report lists.
_SHOWN: Final = 5


class SkyplaneVerifyOperator(SkyplaneOperator):
    """Compares the source with the destination; the task fails if an object is not equal.

    Args:
        source_url, source_endpoint, source_conn_id: as in `SkyplaneTransferOperator`.
        destination_url, destination_endpoint, destination_conn_id: the same for the destination.
        recursive, include, exclude, on_illegal_key: those of the copy.
        allow_empty: succeed if there is nothing to compare.
        with_extra: also fail for objects that only the destination has.
        listing_only: compare names and sizes; read no object.
        download: read all objects at both ends, and compare their SHA-256.

    Returns `VerifyReport.to_dict()`, with the first 50 differences.
    """

    template_fields: Sequence[str] = (
        *SkyplaneOperator.template_fields,
        "source_url",
        "source_endpoint",
        "source_conn_id",
        "destination_url",
        "destination_endpoint",
        "destination_conn_id",
        "include",
        "exclude",
        "on_illegal_key",
    )

    default_map_index_template = MAP_INDEX_TEMPLATE

    def __init__(
        self,
        *,
        source_url: str,
        destination_url: str,
        source_endpoint: str = "",
        source_conn_id: str | None = None,
        destination_endpoint: str = "",
        destination_conn_id: str | None = None,
        recursive: bool = True,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        on_illegal_key: IllegalKeyRule = "fail",
        allow_empty: bool = False,
        with_extra: bool = False,
        listing_only: bool = False,
        download: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source_url = source_url
        self.source_endpoint = source_endpoint
        self.source_conn_id = source_conn_id
        self.destination_url = destination_url
        self.destination_endpoint = destination_endpoint
        self.destination_conn_id = destination_conn_id
        self.recursive = recursive
        self.include = include
        self.exclude = exclude
        self.on_illegal_key = on_illegal_key
        self.allow_empty = allow_empty
        self.with_extra = with_extra
        self.listing_only = listing_only
        self.download = download

    @property
    def map_label(self) -> str:
        """Both ends, for the label of a mapped task."""
        return label_of(self.source_url, self.destination_url)

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.verify(
            self._location("source"),
            self._location("destination"),
            recursive=self.recursive,
            include=texts(self.include),
            exclude=texts(self.exclude),
            on_illegal_key=self.on_illegal_key,
            allow_empty=self.allow_empty,
            with_extra=self.with_extra,
            listing_only=self.listing_only,
            download=self.download,
        )
        how = "checksums" if report.has_checksums else "names and sizes only"
        self.log.info(
            "%d of %d objects are equal (%s, by %s); %s read",
            report.equal,
            report.objects,
            size(report.size_bytes),
            how,
            size(report.read_bytes),
        )
        for warning in report.warnings:
            self.log.warning("%s", warning)
        for row in report.differences:
            self.log.warning("%s %s: %s", row.kind, row.source or row.destination, row.reason)
        if not report.is_equal:
            context["ti"].xcom_push(key="differences", value=report.to_dict())
            raise ObjectsDiffer(report.failure(_SHOWN))
        return report.to_dict()

    def _location(self, side: str) -> Location:
        from skyplane_orchestration.hooks.credential_refs import credential_ref

        return self.hook.placed(
            Location(
                url=getattr(self, f"{side}_url"),
                endpoint_url=getattr(self, f"{side}_endpoint"),
                credential_ref=credential_ref(getattr(self, f"{side}_conn_id")),
            )
        )
