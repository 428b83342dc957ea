"""One transfer at its lead: from the first listed key to the last commit."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import Topology, TransferSpec, TransferState
from skyplane_gateway.errors import (
    Cancelled,
    EmptySource,
    GatewayLost,
    InternalError,
    JournalUnreadable,
    NotFound,
    ObjectsFailed,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.journal.document import Journal, folder_of_destination, rule_digest
from skyplane_gateway.journal.totals import SentRow, Totals, sent_over
from skyplane_gateway.journal.writer import JournalKeeper, NoJournal, take_over
from skyplane_gateway.lead.copier import Movers
from skyplane_gateway.lead.delivery import Courier
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.loss_cause import behind
from skyplane_gateway.lead.object_report import Report
from skyplane_gateway.lead.peers import SinkPeer, SourcePeer
from skyplane_gateway.lead.pipeline import Work
from skyplane_gateway.lead.resume import Recovery
from skyplane_gateway.lead.resume_rules import Doubt, Past, keeps_unseen
from skyplane_gateway.lead.sink_pool import Sinks
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import StoreCapabilities
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.wrappers.retrying import is_throttling

log = logging.getLogger(__name__)

#: So often the journal is written where bytes move and no object ends: what a lead that is
#: lost has sent since is in nobody's totals.
_TOTALS_S: Final = 60.0

#: How long a transfer that breaks off waits for its journal to be written once more.
_LAST_WRITE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Crew:
    """Who takes part in a transfer, as its lead sees them.

    Attributes:
        store: the source, opened by the lead.
        sources, sinks: the gateways at both ends, the lead's own included.
        capabilities: the destination's.
        sink_capacity_bytes: sink node -> chunk bytes that it can hold.
        threads: where blocking calls run.
    """

    store: ObjectStore
    sources: Mapping[str, SourcePeer]
    sinks: Sequence[SinkPeer]
    capabilities: StoreCapabilities
    sink_capacity_bytes: Mapping[str, int]
    threads: Executor


class LeadTransfer:
    """Runs one transfer.

    Args:
        transfer_key, epoch: its identity and this tenure of the lead.
        spec: what to copy.
        topology: the fleet's routes.
        crew: who takes part.
        ack_deadline_s: longest silence of a route that has chunks to deliver.
        clock: measures the time.
        rng: of the pauses between attempts.
        stall_deadline_s: how long nothing at all may arrive before the transfer fails;
            twice `ack_deadline_s` by default.
    """

    def __init__(
        self,
        *,
        transfer_key: str,
        epoch: int,
        spec: TransferSpec,
        topology: Topology,
        crew: Crew,
        ack_deadline_s: float,
        clock: Clock,
        rng: random.Random,
        stall_deadline_s: float | None = None,
    ) -> None:
        self.transfer_key = transfer_key
        self.epoch = epoch
        self.spec = spec
        self.state: TransferState = "running"
        self.error: SkyplaneError | None = None
        self.report = Report()
        self._crew = crew
        self._clock = clock
        self._started = clock.monotonic()
        self._ended: float | None = None
        if stall_deadline_s is None:
            stall_deadline_s = 2 * ack_deadline_s
        self._ack_deadline_s = ack_deadline_s
        self._dispatcher = Dispatcher(topology.routes, crew.sink_capacity_bytes, stall_deadline_s)
        self._sinks = Sinks(crew.sinks, stall_deadline_s=stall_deadline_s, rng=rng)
        self._courier = Courier(
            self._dispatcher,
            crew.sources,
            {sink.node: sink for sink in crew.sinks},
            ack_deadline_s=ack_deadline_s,
            stall_deadline_s=stall_deadline_s,
            rng=rng,
        )
        self._source = SourceCalls(
            crew.store, crew.threads, stall_deadline_s=stall_deadline_s, rng=rng
        )
        self._movers = Movers(
            courier=self._courier,
            report=self.report,
            source=self._source,
            sinks=self._sinks,
            capabilities=crew.capabilities,
            chunk_bytes=spec.chunk_bytes,
            rng=rng,
            keeps_intents=spec.conflict == "fail",
            strict_metadata=spec.strict_metadata,
            clock=clock,
        )
        self._rng = rng
        self._writer = rng.randbytes(16).hex()
        self._folder = folder_of_destination(spec.destination_prefix, recursive=spec.recursive)
        self._keeper: JournalKeeper | None = None
        self._stopped: SkyplaneError | None = None
        self._work: Work | None = None
        self._was_listed = False
        self._routes = topology.routes
        #: Of the epochs before.
        self._earlier = Totals()

    def stop(self, why: SkyplaneError) -> None:
        """Said before the task of `run` is cancelled: end as failed, with that error, and
        keep what a resume needs. Without it a cancellation leaves nothing behind."""
        self._stopped = why

    async def run(self) -> None:
        """Run to the end; never raises for what becomes of the transfer itself."""
        try:
            await self._run_or_explain()
        except SkyplaneError as error:
            self._fail(error)
        except asyncio.CancelledError:
            if self._stopped is None:
                self.state = "cancelled"
                self.error = Cancelled("the transfer was cancelled")
            else:
                self._fail(self._stopped)
        except Exception as error:  # Nobody must wait for this for ever.
            log.exception("transfer %s cannot go on", self.transfer_key)
            self._fail(InternalError.of(error, "leading the transfer", "the lead"))
        finally:
            try:
                await self._undisturbed(self._clean_up)
            finally:
                self._ended = self._clock.monotonic()
                self._let_go()
            log.info("transfer %s %s: %s", self.transfer_key, self.state, self.error or "done")

    async def _undisturbed(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Carry out what comes last, whoever cancels meanwhile: the transfer has ended."""
        task = asyncio.create_task(last())
        while not task.done():
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                log.info("transfer %s was cancelled when it had ended", self.transfer_key)

    def _let_go(self) -> None:
        """Keep no more than is asked of a transfer that has ended: a fleet may see many."""
        self._keeper, self._movers.keeper = None, NoJournal()
        self._was_listed, self._work = self._is_listed, None

    @property
    def _is_listed(self) -> bool:
        return self._was_listed or (self._work is not None and self._work.is_listed)

    async def _run_or_explain(self) -> None:
        try:
            await self._run()
        except GatewayLost as loss:
            sinks, silent_s = self._crew.sinks, self._ack_deadline_s
            raise await behind(loss, sinks, self.spec.destination, silent_s) from loss

    async def _run(self) -> None:
        keeper, objects = await self._take_over()
        duties = [
            asyncio.create_task(duty(node))
            for node in self._crew.sources
            for duty in (self._courier.collect, self._courier.watch)
        ]
        duties.append(asyncio.create_task(self._courier.hasten()))
        duties.append(asyncio.create_task(self._source.watch(self.progress)))
        duties.append(asyncio.create_task(keeper.run()))
        duties.append(asyncio.create_task(self._note_totals(keeper)))
        work = asyncio.create_task(self._move(objects, keeper))
        try:
            done, _ = await asyncio.wait({work, *duties}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            try:
                work.cancel()
                await asyncio.wait({work})
                if self._is_left(work):
                    await self._write_last(keeper)
            finally:  # A second cancel must not leave the duties to themselves.
                for task in duties:
                    task.cancel()
                await asyncio.gather(work, *duties, return_exceptions=True)
        counters = self.report.counters
        if counters.found == 0 and not (self.spec.allow_empty or keeper.is_complete):
            what = "prefix and filters" if self.spec.include or self.spec.exclude else "prefix"
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
            self._fail(ObjectsFailed(self._summary()))
        else:
            self.state = "succeeded"

    def _summary(self) -> str:
        """How many failed, and why the first of them did."""
        counters, first = self.report.counters, self.report.failures[0]
        return (
            f"{counters.failed} of {counters.found} objects failed; the first is "
            f"{first['destination']!r}: {first['reason']}"
        )

    def _fail(self, error: SkyplaneError) -> None:
        self.state, self.error = "failed", error

    @property
    def _is_allowed(self) -> bool:
        """Whether single objects failed, and its owner takes that for success."""
        return self.spec.allow_failed and isinstance(self.error, ObjectsFailed)

    @property
    def _is_resumable(self) -> bool:
        """Whether somebody may go on: by a handle, or as the lead of a newer epoch."""
        error = self.error
        return (
            self.state == "failed"
            and error is not None
            and not self._is_allowed
            and (not error.is_permanent or isinstance(error, StaleEpoch | UnknownTransfer))
        )

    async def _clean_up(self) -> None:
        """Leave nothing behind, or what a resume needs.

        Whoever runs a failed transfer again goes on by its journal, however it failed; its
        open uploads are of use only where going on can help. The journal of a success stays
        until somebody has heard of it (`Endpoints.release`), lest the next run copy all again.
        """
        keeper = self._keeper
        if self._is_resumable or keeper is None:
            return
        if not await self._sinks.call_once("require_newest", keeper.place()):
            return  # What is open is a newer lead's, or out of reach.
        self._movers.uploads.inherit(keeper.uploads)
        await self._movers.uploads.abort_all()
        if self.state == "cancelled":
            await self._sinks.call_once("delete_journals", keeper.place())

    def _is_left(self, work: asyncio.Task[None]) -> bool:
        """Whether the work ended with something left to do, and not by a cancellation."""
        me = asyncio.current_task()
        if me is not None and me.cancelling():
            return self._stopped is not None
        return work.cancelled() or work.exception() is not None or self.report.counters.failed > 0

    async def _write_last(self, keeper: JournalKeeper) -> None:
        """Write the journal once more, for whoever goes on with the transfer."""
        keeper.moved()
        last = asyncio.create_task(keeper.flush())
        try:
            await asyncio.wait({last}, timeout=_LAST_WRITE_S)
        finally:
            last.cancel()
            await asyncio.gather(last, return_exceptions=True)

    # -- the journal

    async def _take_over(self) -> tuple[JournalKeeper, Work]:
        """Take up what earlier epochs left, and see that their leads write no more.

        Raises:
            JournalUnreadable: it may name objects that the rule must not keep unseen.
        """
        rule = rule_digest(self.spec)
        past = await take_over(self._verb, self._folder, self.transfer_key, self.epoch, rule)
        if past.unreadable and keeps_unseen(self.spec):
            raise JournalUnreadable(
                f"{'; '.join(past.unreadable)}; it may name objects that could not be verified, "
                f"and {self.spec.conflict!r} would keep them: if a newer release wrote it, go on "
                "with that; else compare both ends (skyplane-orch verify), remove at the "
                "destination what differs and is nobody else's, delete that journal, try again"
            )
        doubt = Doubt.of(
            conflict=self.spec.conflict,
            verify=self.spec.verify,
            trusts_checksum=self._crew.capabilities.trusts_checksum,
        )
        identity = Journal(
            self.transfer_key,
            self.epoch,
            rule,
            self.spec.chunk_bytes,
            writer=self._writer,
            began_unix_s=self._clock.wall(),
        )
        self._keeper = JournalKeeper(
            self._verb,
            self._folder,
            identity,
            past.journal,
            totals=self._totals,
            rng=self._rng,
        )
        if past.journal is not None:
            self._earlier = past.journal.totals
        recovery = Recovery(
            Past(past.journal, doubt), self._verb, self._source, self._keeper.place()
        )
        self._movers.keeper = self._keeper
        self._work = Work(
            self.spec,
            source=self._source,
            sinks=self._sinks,
            movers=self._movers,
            recovery=recovery,
            report=self.report,
        )
        await recovery.abort_strays(past.strays, self._keeper)
        await recovery.abort_lost(past.lost, self._keeper)
        return self._keeper, self._work

    async def _verb(self, verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer, _ = await self._sinks.call(verb, arguments)
        return answer

    async def _move(self, objects: Work, keeper: JournalKeeper) -> None:
        """Move everything, and see at the end that this lead has been in charge all the time.

        Raises:
            StaleEpoch: it has not; what it knows may be another lead's.
        """
        try:
            await objects.run()
        except NotFound:
            if not keeper.is_complete:
                raise  # Else that single object was moved, and nobody heard of it.
        if not self.report.counters.failed:
            await self._settle_doubts(keeper)
        if self.report.counters.found or keeper.is_complete:
            await keeper.confirm(is_complete=not self.report.counters.failed)

    async def _settle_doubts(self, keeper: JournalKeeper) -> None:
        """Look once more for what requests without an answer have begun, while the journal can
        still say that it is gone."""
        if not self._sinks.doubtful_keys:
            return
        if await self._sinks.call_once("require_newest", keeper.place()):
            await self._movers.uploads.settle_doubts()

    # -- what others may know

    def _totals(self) -> Totals:
        """Of all epochs until now."""
        counters = self.report.counters
        end = self._clock.monotonic() if self._ended is None else self._ended
        own = Totals(
            seconds=end - self._started,
            sent=sent_over(self._routes, self._dispatcher.delivered_bytes()),
            not_carried=counters.not_carried,
            not_carried_by_name=counters.not_carried_by_name,
        )
        return self._earlier.plus(own)

    async def _note_totals(self, keeper: JournalKeeper) -> None:
        """Have the journal written while a large object moves and nothing else happens."""
        noted: tuple[SentRow, ...] = ()
        while True:
            await asyncio.sleep(_TOTALS_S)
            sent = self._totals().sent
            if sent != noted:
                noted = sent
                keeper.moved()

    def progress(self) -> tuple[float, ...]:
        """A value that changes while the transfer moves.

        While a verb runs at a sink it always does: to read back a large object takes
        long, and the verb has a time limit of its own. So does a source that throttles. To
        list what the filters leave out is to move as well.
        """
        counters = self.report.counters
        delivered = sum(self._dispatcher.delivered_bytes().values())
        waits = self._sinks.verbs_under_way or is_throttling(self._crew.store)
        waited_s = self._clock.monotonic() if waits else self._courier.progress_s
        return (
            self._work.looked_at if self._work is not None else 0,
            counters.copied,
            counters.skipped,
            counters.failed,
            delivered,
            waited_s,
        )

    def status(self) -> dict[str, Any]:
        counters = self.report.counters
        end = self._clock.monotonic() if self._ended is None else self._ended
        totals = self._totals()
        return {
            "transfer_key": self.transfer_key,
            "epoch": self.epoch,
            "state": self.state if self._ended is not None else "running",
            "listed": self._is_listed,
            "objects": counters.found,
            "bytes": counters.found_bytes,
            "copied": counters.copied,
            "copied_bytes": counters.copied_bytes,
            "copied_earlier": counters.copied_earlier,
            "copied_earlier_bytes": counters.copied_earlier_bytes,
            "skipped": counters.skipped,
            "skipped_bytes": counters.skipped_bytes,
            "failed": counters.failed,
            "failed_bytes": counters.failed_bytes,
            "unfinished": counters.unfinished,
            "pinned_by_time": counters.pinned_by_time,
            "reserved": counters.reserved,
            "first_reserved": counters.first_reserved,
            "not_carried": totals.not_carried,
            "not_carried_by_name": dict(totals.not_carried_by_name),
            "seconds": end - self._started,
            "earlier": self._earlier.to_dict(),
            "sendings": self._courier.sendings,
            "resent": self._courier.resent,
            "routes_down": {
                str(number): reason for number, reason in self._dispatcher.reasons_down().items()
            },
            "lost_sources": dict(self._courier.lost_sources),
            "lost_sinks": dict(self._sinks.lost),
            "delivered_bytes": {
                str(number): count for number, count in self._dispatcher.delivered_bytes().items()
            },
            "error": self.error.to_dict() if self.error is not None else None,
            "failures": list(self.report.failures) if self._ended is not None else [],
            # Those that nobody will go on with, and that could not be aborted.
            "open_uploads": [
                {"key": upload.key, "upload_id": upload.upload_id}
                for upload in (() if self._is_resumable else self._movers.uploads.open)
            ],
        }

    def uses(self, number: int) -> bool:
        """Whether chunks of this transfer may take that route."""
        return self._dispatcher.knows(number)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Told by the service when a path of the fleet broke."""
        self._courier.route_is_down(number, loss)

    def route_is_up(self, number: int) -> None:
        """Told by the service when a path of the fleet works again."""
        self._courier.bring_up(number)
