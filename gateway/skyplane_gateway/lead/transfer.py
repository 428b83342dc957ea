"""One transfer at its lead: from the first listed key to the last commit."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from skyplane_gateway.config import Topology, TransferSpec
from skyplane_gateway.errors import (
    Cancelled,
    EmptySource,
    GatewayError,
    ObjectsFailed,
    SkyplaneError,
    StoreError,
)
from skyplane_gateway.lead.courier import Courier
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.listing import Listing
from skyplane_gateway.lead.movers import Movers
from skyplane_gateway.lead.peers import SinkPeer, SourcePeer
from skyplane_gateway.lead.report import Report
from skyplane_gateway.lead.sinks import Sinks
from skyplane_gateway.selection import Selection, SelectionRule, is_published_last
from skyplane_gateway.stores import check_destination_key
from skyplane_gateway.stores.base import ObjectInfo, ObjectStore, StoreCapabilities

log = logging.getLogger(__name__)

TransferState = Literal["running", "succeeded", "failed", "cancelled"]

#: Objects and batches under way at once: enough to keep every window full, few enough
#: that a listing of millions waits in the store and not in memory.
_UNDER_WAY: Final = 64

#: Small objects in one chunk: at most so many, and so many bytes.
BATCH_OBJECTS: Final = 256
BATCH_BYTES: Final = 4 << 20

#: Objects per page when a sink lists the destination.
_PAGE_OBJECTS: Final = 1000


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
        clock: monotonic seconds.
        randomness: of the pauses between attempts.
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
        clock: Callable[[], float],
        randomness: random.Random,
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
        self._started = clock()
        self._ended: float | None = None
        self._listed = False
        self._batch_bytes = min(BATCH_BYTES, spec.chunk_bytes)
        if stall_deadline_s is None:
            stall_deadline_s = 2 * ack_deadline_s
        self._dispatcher = Dispatcher(topology.routes, crew.sink_capacity_bytes, stall_deadline_s)
        self._sinks = Sinks(crew.sinks, stall_deadline_s=stall_deadline_s, randomness=randomness)
        self._courier = Courier(
            self._dispatcher,
            crew.sources,
            ack_deadline_s=ack_deadline_s,
            stall_deadline_s=stall_deadline_s,
            randomness=randomness,
        )
        self._movers = Movers(
            courier=self._courier,
            report=self.report,
            store=crew.store,
            sinks=self._sinks,
            capabilities=crew.capabilities,
            chunk_bytes=spec.chunk_bytes,
            threads=crew.threads,
            randomness=randomness,
        )

    async def run(self) -> None:
        """Run to the end; never raises for what becomes of the transfer itself."""
        try:
            await self._run()
        except SkyplaneError as error:
            self._fail(error)
        except asyncio.CancelledError:
            self.state = "cancelled"
            self.error = Cancelled("the transfer was cancelled")
        finally:
            if self.state == "running":
                # A fault of ours is on its way; nobody must wait for this for ever.
                self._fail(GatewayError("the lead stumbled; the end of its log says over what"))
            await asyncio.shield(self._clean_up())
            self._ended = self._clock()
            log.info("transfer %s %s: %s", self.transfer_key, self.state, self.error or "done")

    async def _run(self) -> None:
        collectors = [
            asyncio.create_task(duty(node))
            for node in self._crew.sources
            for duty in (self._courier.collect, self._courier.watch)
        ]
        collectors.append(asyncio.create_task(self._courier.hasten()))
        work = asyncio.create_task(self._move_everything())
        try:
            done, _ = await asyncio.wait({work, *collectors}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (work, *collectors):
                task.cancel()
            await asyncio.gather(work, *collectors, return_exceptions=True)
        counters = self.report.counters
        if counters.found == 0 and not self.spec.allow_empty:
            raise EmptySource(
                f"there are no objects under {self.spec.source_prefix!r} in "
                f"{self.spec.source.bucket!r}; check the prefix, or allow an empty source"
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

    async def _clean_up(self) -> None:
        await self._movers.abort_all()

    # -- the objects

    async def _move_everything(self) -> None:
        """First all that is ordinary, then what announces it to readers."""
        last: list[Selection] = []
        await self._move_all(self._first(last))
        if not last:
            return
        if self.report.counters.failed:
            withheld = StoreError("withheld, because objects that it announces failed")
            for row in last:
                self._movers.enter_failed(row, withheld, 0)
            return
        await self._move_all(_iterate(last))

    async def _first(self, last: list[Selection]) -> AsyncIterator[Selection]:
        """What is to be copied now; fills `last` with what has to wait."""
        async for row in self._selections():
            counters = self.report.counters
            counters.found += 1
            counters.found_bytes += row.source.size_bytes
            if row.action == "skip":
                self.report.skipped(
                    row.source.key, row.destination_key, row.source.size_bytes, row.reason
                )
            elif row.action == "refuse":
                self._movers.enter_failed(row, StoreError(row.reason, is_permanent=True), 0)
            elif is_published_last(row.destination_key, self.spec.publish_last):
                last.append(row)
            else:
                yield row

    async def _move_all(self, rows: AsyncIterator[Selection]) -> None:
        """Copy every row, `_UNDER_WAY` movements at a time."""
        room = asyncio.Semaphore(_UNDER_WAY)

        async def start(movement: Coroutine[Any, Any, None]) -> None:
            await room.acquire()
            task = group.create_task(movement)
            task.add_done_callback(lambda _: room.release())

        try:
            async with asyncio.TaskGroup() as group:
                batch: list[Selection] = []
                async for row in rows:
                    size = row.source.size_bytes
                    if size > self.spec.chunk_bytes:
                        await start(self._movers.move_in_parts(row))
                    elif size >= self._batch_bytes:
                        await start(self._movers.move_whole([row]))
                    else:
                        batch = await self._fill(batch, row, start)
                if batch:
                    await start(self._movers.move_whole(batch))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _fill(
        self,
        batch: list[Selection],
        row: Selection,
        start: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]],
    ) -> list[Selection]:
        """Add a small object to the batch; the batch that goes on being filled."""
        size = sum(other.source.size_bytes for other in batch) + row.source.size_bytes
        if batch and (len(batch) == BATCH_OBJECTS or size > self._batch_bytes):
            await start(self._movers.move_whole(batch))
            return [row]
        return [*batch, row]

    # -- the listings

    async def _selections(self) -> AsyncIterator[Selection]:
        spec = self.spec
        rule = SelectionRule(
            source_prefix=spec.source_prefix,
            destination_prefix=spec.destination_prefix,
            recursive=spec.recursive,
            include=spec.include,
            exclude=spec.exclude,
            conflict=spec.conflict,
        )
        listing = Listing(
            rule,
            list_source=self._crew.store.list,
            fetch_page=self._fetch_page,
            check_key=partial(check_destination_key, spec.destination.kind),
            threads=self._crew.threads,
        )
        async for row in listing.selections():
            yield row
        self._listed = True

    async def _fetch_page(
        self, prefix: str, start_after: str | None
    ) -> tuple[list[ObjectInfo], bool]:
        """A page of the destination, through a sink."""
        arguments = {"prefix": prefix, "start_after": start_after, "limit": _PAGE_OBJECTS}
        page, _ = await self._sinks.call("list", arguments)
        return [ObjectInfo.from_dict(row) for row in page["objects"]], bool(page["more"])

    # -- what others may know

    def progress(self) -> tuple[float, ...]:
        """A value that changes while the transfer moves.

        While a verb runs at a sink it always does: to read back a large object takes
        long, and the verb has a time limit of its own.
        """
        counters = self.report.counters
        delivered = sum(self._dispatcher.delivered_bytes().values())
        waited_s = self._clock() if self._sinks.verbs_under_way else 0.0
        return (
            counters.found,
            counters.copied,
            counters.skipped,
            counters.failed,
            delivered,
            waited_s,
        )

    def status(self) -> dict[str, Any]:
        counters = self.report.counters
        end = self._clock() if self._ended is None else self._ended
        return {
            "transfer_key": self.transfer_key,
            "epoch": self.epoch,
            "state": self.state if self._ended is not None else "running",
            "listed": self._listed,
            "objects": counters.found,
            "bytes": counters.found_bytes,
            "copied": counters.copied,
            "copied_bytes": counters.copied_bytes,
            "skipped": counters.skipped,
            "failed": counters.failed,
            "seconds": end - self._started,
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
            "open_uploads": [
                {"key": upload.key, "upload_id": upload.upload_id}
                for upload in self._movers.open_uploads
            ],
        }

    def uses(self, number: int) -> bool:
        """Whether chunks of this transfer may take that route."""
        return self._dispatcher.knows(number)

    def route_is_down(self, number: int, reason: str) -> None:
        """Told by the service when a path of the fleet broke."""
        self._courier.lose(number, reason)

    def route_is_up(self, number: int) -> None:
        """Told by the service when a path of the fleet works again."""
        self._courier.bring_up(number)


async def _iterate(rows: Sequence[Selection]) -> AsyncIterator[Selection]:
    for row in rows:
        yield row
