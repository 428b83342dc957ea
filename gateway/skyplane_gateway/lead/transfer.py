"""Leads one transfer, from the first listed key to the last commit."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import (
    Cancelled,
    EmptySource,
    GatewayLost,
    InternalError,
    NotFound,
    ObjectsFailed,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.common.object_filter import ALL_OBJECTS
from skyplane_gateway.common.objects import StoreCapabilities
from skyplane_gateway.config import Topology, TransferSpec, TransferState
from skyplane_gateway.journal.document import Journal, rule_digest
from skyplane_gateway.journal.totals import SentRow
from skyplane_gateway.journal.writer import JournalWriter
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.chunk_delivery import ChunkDelivery
from skyplane_gateway.lead.chunk_progress import ChunkProgress
from skyplane_gateway.lead.context import TransferContext
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.epoch import Epoch, build_epoch, take_over
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.server_side_copies import ServerSideCopies
from skyplane_gateway.lead.sink_pool import SinkPeer, SinkPool
from skyplane_gateway.lead.source_peers import SourcePeer
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.lead.status import StatusBuilder
from skyplane_gateway.lead.throttle_probe import explain_loss
from skyplane_gateway.stores.base import ListedRows, ObjectStore
from skyplane_gateway.stores.wrappers.retrying import is_throttling

log = logging.getLogger(__name__)

#: How often the journal is written while bytes are sent and no object ends: totals that no
#: journal has are lost with their lead.
_TOTALS_S: Final = 60.0

#: So many whole objects fit in the window of each route, so that one is read while another is
#: written.
_WHOLE_IN_WINDOW: Final = 4

#: Longest wait for the last write of the journal of a transfer that stops.
_LAST_WRITE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Peers:
    """The gateways of a transfer as its lead calls them, and the lead's own means.

    Attributes:
        sources, sinks: the gateways at both ends, the lead's own included.
        sink_capacity_bytes: sink node -> chunk bytes that it can hold.
        threads: where blocking calls run.
        listed: rows of the source that are known already.
    """

    store: ObjectStore
    sources: Mapping[str, SourcePeer]
    sinks: Sequence[SinkPeer]
    capabilities: StoreCapabilities
    sink_capacity_bytes: Mapping[str, int]
    threads: Executor
    listed: ListedRows | None = None


class LeadTransfer:
    """Runs one transfer.

    Args:
        ack_deadline_s: longest silence of a route that has chunks in flight.
        stall_deadline_s: longest time without any delivery before the transfer fails.
    """

    def __init__(
        self,
        *,
        transfer_key: str,
        epoch: int,
        spec: TransferSpec,
        topology: Topology,
        peers: Peers,
        ack_deadline_s: float,
        stall_deadline_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.transfer_key = transfer_key
        self.epoch = epoch
        self.spec = spec
        self.state: TransferState = "running"
        self.error: SkyplaneError | None = None
        self.report = Report()
        self._peers = peers
        self._ack_deadline_s = ack_deadline_s
        retries = Retries(rng)
        self._dispatcher = Dispatcher(topology.routes, peers.sink_capacity_bytes, stall_deadline_s)
        self._sinks = SinkPool(peers.sinks, stall_deadline_s=stall_deadline_s, retries=retries)
        self._delivery = ChunkDelivery(
            self._dispatcher,
            peers.sources,
            {sink.node: sink for sink in peers.sinks},
            ack_deadline_s=ack_deadline_s,
            stall_deadline_s=stall_deadline_s,
            retries=retries,
        )
        self._context = self._make_context(retries, clock, stall_deadline_s)
        self._progress = ChunkProgress(
            spec, self._delivery.in_flight, peers.sources.values(), peers.sinks
        )
        self._status = StatusBuilder(
            transfer_key, epoch, topology.routes, self._dispatcher, self._context, self._progress
        )
        self._writer = rng.randbytes(16).hex()
        self._stop_reason: SkyplaneError | None = None
        #: None before the epoch is open, and once the transfer has ended.
        self._epoch: Epoch | None = None
        self._has_ended = asyncio.Event()

    def _make_context(
        self, retries: Retries, clock: Clock, stall_deadline_s: float
    ) -> TransferContext:
        peers, spec = self._peers, self.spec
        source = SourceStore(
            peers.store,
            peers.threads,
            deadline_s=stall_deadline_s,
            progress=self.progress,
            retries=retries,
            listed=peers.listed,
        )
        server_side = ServerSideCopies(
            spec, self._sinks, source=peers.store.capabilities, destination=peers.capabilities
        )
        # A route must hold several objects that are sent whole at a time.
        room = self._dispatcher.smallest_window_bytes // _WHOLE_IN_WINDOW
        whole_bytes = min(spec.whole_bytes, room, peers.capabilities.max_part_bytes)
        return TransferContext(
            spec=spec,
            source=source,
            sinks=self._sinks,
            delivery=self._delivery,
            capabilities=peers.capabilities,
            server_side=server_side,
            report=self.report,
            retries=retries,
            clock=clock,
            whole_bytes=max(spec.chunk_bytes, whole_bytes),
        )

    def stop(self, why: SkyplaneError) -> None:
        """Call this before cancelling the task of `run`: the transfer then fails with that
        error, and keeps what a resume needs. A plain cancellation leaves nothing behind."""
        self._stop_reason = why

    async def run(self) -> None:
        """Run to the end; errors of the transfer are in `error`."""
        try:
            await self._run_or_explain()
        except SkyplaneError as error:
            self._fail(error)
        except asyncio.CancelledError:
            if self._stop_reason is None:
                self.state = "cancelled"
                self.error = Cancelled("the transfer was cancelled")
            else:
                self._fail(self._stop_reason)
        except Exception as error:  # Else callers would wait for the end forever.
            log.exception("transfer %s cannot continue", self.transfer_key)
            self._fail(InternalError.of(error, "leading the transfer", "the lead"))
        finally:
            try:
                await self._uncancelled(self._clean_up())
            finally:
                self._status.end()
                self._progress.close()
                # Free the journal: a fleet may lead many transfers.
                self._epoch = None
                self._has_ended.set()
            log.info("transfer %s %s: %s", self.transfer_key, self.state, self.error or "done")

    async def _uncancelled(self, last: Coroutine[Any, Any, None]) -> None:
        """Run to the end in spite of cancellations: the transfer has ended."""
        task = asyncio.create_task(last)
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                log.info("transfer %s was cancelled when it had ended", self.transfer_key)

    async def _run_or_explain(self) -> None:
        try:
            await self._run()
        except GatewayLost as loss:
            sinks, silent_s = self._peers.sinks, self._ack_deadline_s
            raise await explain_loss(loss, sinks, self.spec.destination, silent_s) from loss

    async def _run(self) -> None:
        epoch = await self._open_epoch()
        background = [
            asyncio.create_task(run)
            for run in (
                *self._delivery.background(),
                self._context.source.watch(),
                epoch.journal.run(),
                self._write_totals(epoch),
            )
        ]
        copying = asyncio.create_task(self._copy_all(epoch))
        try:
            done, _ = await asyncio.wait(
                {copying, *background}, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            try:
                copying.cancel()
                await asyncio.wait({copying})
                if self._has_work_left(copying):
                    await self._write_last(epoch.journal)
            finally:  # Also when another cancellation comes meanwhile.
                for task in background:
                    task.cancel()
                await asyncio.gather(copying, *background, return_exceptions=True)
        self._set_result(is_complete=epoch.journal.state.is_complete)

    def _set_result(self, *, is_complete: bool) -> None:
        """Every listed object has ended. `is_complete`: an earlier epoch had copied all."""
        counters = self.report.counters
        if counters.found == 0 and not (self.spec.allow_empty or is_complete):
            has_filters = self.spec.include or self.spec.exclude or self.spec.filter != ALL_OBJECTS
            what = "prefix and filters" if has_filters else "prefix"
            raise EmptySource(
                f"there are no objects to copy under {self.spec.source_prefix!r} in "
                f"{self.spec.source.bucket!r}; check the {what}, or allow an empty source"
            )
        if counters.unfinished:
            raise InternalError(
                f"{counters.found} objects were found, but {counters.copied} copied, "
                f"{counters.skipped} skipped and {counters.failed} failed: one of them was lost "
                "or counted twice; please report this with the lead's log"
            )
        if counters.failed:
            first = self.report.failures[0]
            summary = (
                f"{counters.failed} of {counters.found} objects failed; the first is "
                f"{first['destination']!r}: {first['reason']}"
            )
            self._fail(ObjectsFailed(summary))
        else:
            self.state = "succeeded"

    def _fail(self, error: SkyplaneError) -> None:
        self.state, self.error = "failed", error

    @property
    def _is_resumable(self) -> bool:
        """Whether a resume handle or the lead of a newer epoch may continue the transfer."""
        error = self.error
        # The job counts failed objects as success.
        is_allowed = self.spec.allow_failed and isinstance(error, ObjectsFailed)
        return (
            self.state == "failed"
            and error is not None
            and not is_allowed
            and (not error.is_permanent or isinstance(error, StaleEpoch | UnknownTransfer))
        )

    async def _clean_up(self) -> None:
        """Abort open uploads that no resume can use; after a cancellation remove the journals.

        Otherwise the journals stay for a resume. The journal of a success stays until the
        orchestrator knows of it (`TransferSides.release`), so that a new run does not copy all
        again.
        """
        epoch = self._epoch
        if self._is_resumable or epoch is None:
            return
        uploads, named = epoch.multipart.uploads, epoch.journal.state.uploads
        is_open = uploads.open or named or self._sinks.unanswered_creates
        if not is_open and self.state != "cancelled":
            return
        if not await self._sinks.try_call("require_newest", epoch.journal.arguments()):
            return  # The open uploads are a newer lead's, or no sink answers.
        uploads.take_over(named)
        await uploads.abort_all()
        if self.state == "cancelled":
            await self._sinks.try_call("delete_journals", epoch.journal.arguments())

    # -- the epoch

    async def _open_epoch(self) -> Epoch:
        """Take over from earlier epochs; errors as `take_over`."""
        identity = Journal(
            self.transfer_key,
            self.epoch,
            rule_digest(self.spec),
            self.spec.chunk_bytes,
            writer=self._writer,
            began_unix_s=self._context.clock.wall(),
        )
        left = await take_over(self._context, identity)
        epoch = self._epoch = build_epoch(self._context, identity, left, self._status.totals)
        self._status.earlier = epoch.earlier
        await epoch.resumer.abort_abandoned(left, epoch.journal.state)
        return epoch

    async def _copy_all(self, epoch: Epoch) -> None:
        """Copy all objects, and confirm that this lead was in charge until the end."""
        journal, counters = epoch.journal, self.report.counters
        try:
            await epoch.pipeline.run()
        except NotFound:
            if not journal.state.is_complete:
                raise  # Else an earlier epoch has moved this single object.
        has_unanswered = not counters.failed and self._sinks.unanswered_creates
        # Now, while the journal can still record that such uploads are gone.
        if has_unanswered and await self._sinks.try_call("require_newest", journal.arguments()):
            await epoch.multipart.uploads.abort_all_unanswered()
        if counters.found or journal.state.is_complete:
            await journal.confirm(is_complete=not counters.failed)

    def _has_work_left(self, copying: asyncio.Task[None]) -> bool:
        """Whether a resume may have work to do."""
        me = asyncio.current_task()
        if me is not None and me.cancelling():
            return self._stop_reason is not None
        has_failed = copying.cancelled() or copying.exception() is not None
        return has_failed or self.report.counters.failed > 0

    async def _write_last(self, journal: JournalWriter) -> None:
        """Write the journal once more, for a resume."""
        journal.state.totals_changed()
        last = asyncio.create_task(journal.flush())
        try:
            await asyncio.wait({last}, timeout=_LAST_WRITE_S)
        finally:
            last.cancel()
            await asyncio.gather(last, return_exceptions=True)

    async def _write_totals(self, epoch: Epoch) -> None:
        """Have the journal written while a large object is sent and no object ends."""
        written: tuple[SentRow, ...] = ()
        while True:
            await asyncio.sleep(_TOTALS_S)
            sent = self._status.totals(epoch.earlier).sent
            if sent != written:
                written = sent
                epoch.journal.state.totals_changed()

    # -- for the service

    def progress(self) -> tuple[float, ...]:
        """A value that changes while the transfer makes progress.

        It always changes while a sink runs a verb, which has a time limit of its own and may
        read back a large object, and while the source throttles. To list objects that the
        filters leave out is progress as well.
        """
        counters = self.report.counters
        delivered = sum(self._dispatcher.delivered_bytes().values())
        waits = self._sinks.verbs_in_flight or is_throttling(self._peers.store)
        return (
            counters.listed,
            counters.copied,
            counters.skipped,
            counters.failed,
            delivered,
            self._context.clock.monotonic() if waits else self._delivery.in_flight.progress_s,
        )

    def status(self) -> dict[str, Any]:
        """The status document."""
        return self._status.document(self.state, self.error, is_resumable=self._is_resumable)

    async def wait_for_end(self, wait_s: float) -> None:
        """Return when the transfer has ended, and after `wait_s` at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._has_ended.wait()

    def uses(self, number: int) -> bool:
        """Whether chunks of this transfer may take that route."""
        return self._dispatcher.has_route(number)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """The service calls this when a path of the fleet breaks."""
        self._delivery.routes.path_broke(number, loss)

    def route_is_up(self, number: int) -> None:
        """The service calls this when a path of the fleet works again."""
        self._delivery.routes.bring_up(number)
