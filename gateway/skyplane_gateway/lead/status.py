"""The status document of a transfer, and its totals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.config import Route, TransferState
from skyplane_gateway.journal.totals import COUNTS, Totals, sent_over
from skyplane_gateway.lead.chunk_progress import ChunkProgress
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.dispatcher import Dispatcher

#: Counters that the document shows under their own names.
_COUNTERS: Final = (
    *("copied", "copied_bytes", "copied_earlier", "copied_earlier_bytes"),
    *("skipped", "skipped_bytes", "failed", "failed_bytes", "unfinished"),
    *("archived", "pinned_by_time", "reserved", "unmatched_patterns"),
    *("manifest_trouble", "trusted_unix_s", "edited"),
)


class StatusBuilder:
    """Measures one transfer from its beginning to its end."""

    def __init__(
        self,
        transfer_key: str,
        epoch: int,
        routes: Sequence[Route],
        dispatcher: Dispatcher,
        context: TransferContext,
        progress: ChunkProgress,
    ) -> None:
        self._transfer_key = transfer_key
        self._epoch = epoch
        self._routes = routes
        self._dispatcher = dispatcher
        self._context = context
        self._progress = progress
        self._clock = context.clock
        self._began_s = context.clock.monotonic()
        self._ended_s: float | None = None
        self.earlier = Totals()

    def end(self) -> None:
        """The transfer has ended; its clock stops."""
        self._ended_s = self._clock.monotonic()

    @property
    def _seconds(self) -> float:
        end_s = self._clock.monotonic() if self._ended_s is None else self._ended_s
        return end_s - self._began_s

    def totals(self, earlier: Totals) -> Totals:
        """Of all epochs until now; `earlier` are the totals of the epochs before."""
        counters = self._context.report.counters
        return earlier.plus(
            Totals(
                seconds=self._seconds,
                sent=sent_over(self._routes, self._dispatcher.delivered_bytes()),
                **{name: getattr(counters, name) for name in COUNTS},
                not_carried_by_name=counters.not_carried_by_name,
            )
        )

    def document(
        self, state: TransferState, error: SkyplaneError | None, *, is_resumable: bool
    ) -> dict[str, Any]:
        """The status document; open uploads are not shown where a resume continues them."""
        counters = self._context.report.counters
        totals = self.totals(self.earlier)
        has_ended = self._ended_s is not None
        delivered = self._dispatcher.delivered_bytes()
        moving_bytes = self._progress.moving_bytes() + self._context.server_side.unfinished_bytes
        return {
            "transfer_key": self._transfer_key,
            "epoch": self._epoch,
            "state": state if has_ended else "running",
            "listed": counters.is_listed,
            "source_digest": counters.digest.text if counters.is_listed else "",
            "objects": counters.found,
            "bytes": counters.found_bytes,
            **{name: getattr(counters, name) for name in _COUNTERS},
            **{name: getattr(totals, name) for name in COUNTS},
            "server_side_refusal": self._context.server_side.refusal,
            "not_carried_by_name": dict(totals.not_carried_by_name),
            "seconds": self._seconds,
            "earlier": self.earlier.to_dict(),
            "sendings": self._context.delivery.sent,
            "resent": self._context.delivery.resent,
            "routes_down": {str(n): why for n, why in self._dispatcher.reasons_down().items()},
            "lost_sources": dict(self._context.delivery.routes.lost_sources),
            "lost_sinks": dict(self._context.sinks.lost),
            "moving_bytes": 0 if has_ended else moving_bytes,
            "delivered_bytes": {str(number): count for number, count in delivered.items()},
            "error": error.to_dict() if error is not None else None,
            "failures": list(self._context.report.failures) if has_ended else [],
            "largest": self._context.report.largest if has_ended else [],
            "open_uploads": [
                {"key": upload.key, "upload_id": upload.upload_id}
                for upload in (() if is_resumable else self._context.open_uploads)
            ],
        }
