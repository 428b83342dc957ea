"""`SkyplaneVerifyOperator`: compares the objects at two locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ObjectsDiffer
from skyplane_orchestration.operators.arguments import Flag
from skyplane_orchestration.operators.job import SkyplaneJobOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client

#: Differences in the message of a failure; XCom has all that the report lists.
_SHOWN: Final = 5


class SkyplaneVerifyOperator(SkyplaneJobOperator):
    """Compares the source with the destination; the task fails if an object is not equal.

    It takes the arguments of the copy, and compares the objects that the copy selects. Those that
    say only how to copy, such as `conflict` and `min_throughput_gbps`, change nothing here.

    Args:
        with_extra: also fail for objects that only the destination has.
        listing_only: compare names and sizes; read no object.
        download: read all objects at both ends, and compare their SHA-256.

    Returns `VerifyReport.to_dict()`, with the first 50 differences.
    """

    with_extra: bool
    listing_only: bool
    download: bool

    def __init__(
        self,
        *,
        with_extra: Flag = False,
        listing_only: Flag = False,
        download: Flag = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        report = client.verify(
            self.hook.placed_job(self.transfer_job()),
            with_extra=self.with_extra,
            listing_only=self.listing_only,
            download=self.download,
        )
        self.log.info("%s", report.summary)
        for warning in report.warnings:
            self.log.warning("%s", warning)
        for row in report.differences:
            self.log.warning("%s %s: %s", row.kind, row.source or row.destination, row.reason)
        if not report.is_equal:
            self.push(context, "differences", report.to_dict())
            raise ObjectsDiffer(report.failure(_SHOWN))
        return report.to_dict()
