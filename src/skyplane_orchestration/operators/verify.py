"""`SkyplaneVerifyOperator`: compares the objects at two locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.config import IllegalKeyRule
from skyplane_orchestration.errors import ObjectsDiffer
from skyplane_orchestration.formatting import size
from skyplane_orchestration.model.flat_job import location_of
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.operators.arguments import Flag, Texts
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.operators.map_label import MAP_INDEX_TEMPLATE, label_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: Differences in the message of a failure; XCom has all that the report lists.
_SHOWN: Final = 5
#: Arguments that the client has, too.
_PASSED_ON: Final = (
    *("recursive", "include", "exclude", "on_illegal_key", "allow_empty"),
    *("with_extra", "listing_only", "download"),
)


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

    default_map_index_template = MAP_INDEX_TEMPLATE
    source_url: str
    destination_url: str

    def __init__(
        self,
        *,
        source_url: str,
        destination_url: str,
        source_endpoint: str = "",
        source_conn_id: str | None = None,
        destination_endpoint: str = "",
        destination_conn_id: str | None = None,
        recursive: Flag = True,
        include: Texts = (),
        exclude: Texts = (),
        on_illegal_key: IllegalKeyRule = "fail",
        allow_empty: Flag = False,
        with_extra: Flag = False,
        listing_only: Flag = False,
        download: Flag = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    @property
    def map_label(self) -> str:
        """Both ends, for the label of a mapped task."""
        return label_of(self.source_url, self.destination_url)

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.verify(
            self._location("source"),
            self._location("destination"),
            **{name: getattr(self, name) for name in _PASSED_ON},
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
            location_of(
                side,
                {
                    "url": getattr(self, f"{side}_url"),
                    "endpoint_url": getattr(self, f"{side}_endpoint"),
                    "credential_ref": credential_ref(getattr(self, f"{side}_conn_id")),
                },
            )
        )
