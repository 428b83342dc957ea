"""`SkyplaneVerifyOperator`: compares the objects at two locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from skyplane_orchestration.errors import ObjectsDiffer
from skyplane_orchestration.operators.arguments import Flag
from skyplane_orchestration.operators.job import SkyplaneJobOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from skyplane_orchestration.client import Client
    from skyplane_orchestration.storage.compare import VerifyReport
    from skyplane_orchestration.storage.manifest.place_manifest import ManifestReport

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
        against: `manifest`: compare the destination folder with its manifest, and not with the
            source; the other arguments here then change nothing. See docs/how-to/manifest.md.
        public_key: Ed25519 key that has to have signed the manifest: a PEM file, or `env:NAME`.

    Returns `VerifyReport.to_dict()`, with the first 50 differences, or `ManifestReport.to_dict()`.
    """

    with_extra: bool
    listing_only: bool
    download: bool
    against: Literal["source", "manifest"]
    public_key: str | None

    def __init__(
        self,
        *,
        with_extra: Flag = False,
        listing_only: Flag = False,
        download: Flag = False,
        against: Literal["source", "manifest"] = "source",
        public_key: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.keep(locals())

    def work(self, context: Context, client: Client) -> dict[str, Any]:
        job = self.hook.placed_job(self.transfer_job())
        if self.against == "manifest":
            manifest = client.manifest(job.destination, manifest_at=job.manifest_at)
            return self._end(context, manifest.verify(self.public_key))
        report = client.verify(
            job,
            with_extra=self.with_extra,
            listing_only=self.listing_only,
            download=self.download,
        )
        for warning in report.warnings:
            self.log.warning("%s", warning)
        for row in report.differences:
            self.log.warning("%s %s: %s", row.kind, row.source or row.destination, row.reason)
        return self._end(context, report)

    def _end(self, context: Context, report: VerifyReport | ManifestReport) -> dict[str, Any]:
        self.log.info("%s", report.summary)
        if not report.is_equal:
            self.push(context, "differences", report.to_dict())
            raise ObjectsDiffer(report.failure(_SHOWN))
        return report.to_dict()
