"""The ends of transfers at one gateway: what it reads from, and what it writes to."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Final, TypeVar, get_args

from skyplane_gateway.config import GatewayConfig, Verification
from skyplane_gateway.control.client import verb_limit_s
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    GatewayLost,
    StaleEpoch,
    StoreUnavailable,
    Throttled,
    UnknownTransfer,
)
from skyplane_gateway.identifiers import wire_fleet_id, wire_transfer_id
from skyplane_gateway.objects import Credentials, StoreSpec
from skyplane_gateway.protocol import ReceiptHeader
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.sink.receiver import Sink, SinkTransfer
from skyplane_gateway.source.transfer import SendFrame, SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

log = logging.getLogger(__name__)

T = TypeVar("T")

#: So long a verb waits for a store that throttles, its turn included; then the lead is told,
#: and asks again. Well within the time that a lead waits for the answer, so that a gateway
#: that is patient is not taken for one that is gone.
_VERB_WITHIN_S: Final = 20.0

#: A caller is told so much before it gives up that the store does not answer.
_CALLER_GIVES_UP_S: Final = 5.0

#: The first look at a store; whoever attaches it waits for a minute.
_CHECKED_WITHIN_S: Final = 50.0

#: What is left of a transfer that ends is cleared up within that time, or by the sweep.
_CLEARED_WITHIN_S: Final = 10.0


class Ends:
    """Sources and destinations by transfer key. All methods run on the event loop.

    Args:
        config: how the gateway runs.
        sink: puts together what arrives here.
        send_frame: sends a frame down its route.
        threads: where chunks are read and written.
        is_led: whether this gateway leads the transfer of that key now.
        loss_of: why the route of that number is down; None while it is not.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        sink: Sink,
        send_frame: SendFrame,
        threads: Executor,
        is_led: Callable[[str], bool],
        loss_of: Callable[[int], GatewayLost | None] = lambda number: None,
    ) -> None:
        self._config = config
        self._sink = sink
        self._send_frame = send_frame
        self._threads = threads
        self._is_led = is_led
        self._loss_of = loss_of
        # Verbs of a lead have threads of their own: they wait for a store only, never for
        # another gateway, so no ring of gateways can wait for one another.
        self._verb_threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="verb")
        # And those that take long have others, so that they hold up none that does not.
        self._long_threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="long")
        #: Verbs that wait for a thread, or run.
        self._verbs: set[asyncio.Future[dict[str, Any]]] = set()
        self.sources: dict[str, SourceTransfer] = {}
        self._source_of_wire_id: dict[bytes, SourceTransfer] = {}
        self.destinations: dict[str, SinkTransfer] = {}
        #: (transfer key, side) -> the store that is open for it.
        self._stores: dict[tuple[str, str], RetryingStore] = {}
        #: Transfer key -> the newest epoch that is over here, and the newest of which somebody
        #: has heard that it ended well; 0 for none.
        self._released: dict[str, tuple[int, int]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def lock(self, key: str) -> asyncio.Lock:
        """What keeps attach, submit, cancel and release of one transfer apart."""
        return self._locks[key]

    # -- the data path

    def on_receipt(self, header: ReceiptHeader, sealed: memoryview) -> None:
        """Hand a receipt to the source that waits for it."""
        source = self._source_of_wire_id.get(header.transfer)
        if source is not None:
            source.on_receipt(header, sealed)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Tell every source that a path of the fleet broke."""
        for source in self.sources.values():
            source.route_is_down(number, loss)

    # -- attach and release

    async def attach(
        self,
        key: str,
        *,
        epoch: int,
        side: str,
        store: StoreSpec,
        credentials: Credentials | None,
        verify: str,
    ) -> dict[str, Any]:
        """Open the store of one end; it is asked at once, so that bad news comes early.

        An end that is at work for that epoch already stays as it is: two orchestrators
        may submit the same transfer, and the second joins.

        Raises:
            StoreError: the bucket is missing, closed to us, or does not answer.
            StaleEpoch: a newer epoch is in charge here.
        """
        if side not in ("source", "sink"):
            raise ConfigurationInvalid(f"a transfer has a source and a sink side, not {side!r}")
        if verify not in get_args(Verification):
            raise ConfigurationInvalid(f"there is no verification {verify!r}")
        wire_transfer_id(key)
        opened = open_store(store, credentials)
        loop = asyncio.get_running_loop()
        is_taken = False
        try:
            check = loop.run_in_executor(self._verb_threads, _check, opened)
            await _answered(check, _CHECKED_WITHIN_S, store.place)
            opened.wait_for_credentials()
            async with self.lock(key):
                if side == "source":
                    is_taken = await self._attach_source(key, epoch, opened)
                else:
                    is_taken = await self._attach_sink(key, epoch, opened, verify)
        finally:
            if not is_taken:
                await loop.run_in_executor(self._verb_threads, opened.close)
        return {}

    async def _attach_source(self, key: str, epoch: int, store: RetryingStore) -> bool:
        """Whether the store is in use now."""
        current = self.sources.get(key)
        if current is not None:
            if current.epoch > epoch:
                raise _stale(epoch, current.epoch)
            if current.epoch == epoch and (current.is_used or self._is_led(key)):
                return False
        fresh = SourceTransfer(
            fleet=wire_fleet_id(self._config.fleet_key),
            transfer=wire_transfer_id(key),
            epoch=epoch,
            store=store,
            send_frame=self._send_frame,
            threads=self._threads,
            readers=self._config.readers,
            loss_of=self._loss_of,
            is_throttled=self._is_throttled,
            node=self._config.node,
        )
        former = self._replace_store(key, "source", store)
        self.sources[key] = self._source_of_wire_id[wire_transfer_id(key)] = fresh
        if current is not None:
            if former is not None:
                former.cancel()
            await current.close()
        return True

    async def _attach_sink(self, key: str, epoch: int, store: RetryingStore, verify: Any) -> bool:
        """Whether the store is in use now."""
        current = self.destinations.get(key)
        if current is not None and current.epoch > epoch:
            raise _stale(epoch, current.epoch)
        if current is not None and current.epoch == epoch and current.is_used:
            return False
        former = self._replace_store(key, "sink", store)
        fresh = SinkTransfer(epoch, Destination(store, verify))
        self.destinations[key] = fresh
        self._sink.attach(wire_transfer_id(key), fresh)
        if current is not None:
            if former is not None:
                former.cancel()
                former.reopen(_CLEARED_WITHIN_S)
            await asyncio.to_thread(current.destination.close)
        return True

    def _replace_store(self, key: str, side: str, store: RetryingStore) -> RetryingStore | None:
        former = self._stores.get((key, side))
        self._stores[key, side] = store
        return former

    async def renew_credentials(
        self, key: str, *, epoch: int, side: str, credentials: Credentials
    ) -> dict[str, Any]:
        """Give an end that is attached fresh credentials; what waits for them goes on.

        Raises:
            UnknownTransfer: no such end is attached here.
            StaleEpoch: a newer epoch is in charge here.
            ConfigurationInvalid: the store cannot be opened with them.
        """
        async with self.lock(key):
            ends: Mapping[str, SourceTransfer | SinkTransfer]
            ends = self.sources if side == "source" else self.destinations
            store, end = self._stores.get((key, side)), ends.get(key)
            if store is None or end is None:
                raise UnknownTransfer(f"{self._config.node} is no {side} of transfer {key}")
            if epoch < end.epoch:
                raise _stale(epoch, end.epoch)
            await asyncio.to_thread(store.renew_credentials, credentials)
        return {}

    def needs_credentials(self, key: str) -> list[str]:
        """The sides of a transfer here whose credentials have expired, or soon will."""
        sides = ("source", "sink")
        stores = ((side, self._stores.get((key, side))) for side in sides)
        return [side for side, store in stores if store is not None and store.needs_credentials]

    async def release(self, key: str, epoch: int, journals_in: str | None = None) -> bool:
        """Forget a transfer's stores and credentials; abort uploads still open here that no
        journal names. Once a newer epoch is in charge here, they are that one's. That the
        epoch is over is remembered.

        Args:
            journals_in: folder of its journals: its success was heard, and nobody goes on by
                them any more.

        Returns:
            Whether its journals are gone; nothing is written for it any more.
        """
        async with self.lock(key):
            held = self.attached().get(key)
            if held is not None and held["epoch"] > epoch:
                return False
            self._note_release(key, epoch, is_heard=journals_in is not None)
            destination = self.destinations.get(key)
            if destination is not None and journals_in is not None:
                destination.destination.note_journals(journals_in, key)
            return await self.release_locked(key, abandon=journals_in is not None)

    async def release_locked(self, key: str, *, abandon: bool = False) -> bool:
        """`release` for a caller that holds the transfer's lock.

        Args:
            abandon: nobody goes on with it: abort what its journals name as well, and remove
                them.

        Returns:
            Whether that was done.
        """
        source = self.sources.pop(key, None)
        if source is not None:
            self._note_release(key, source.epoch)
            self._source_of_wire_id.pop(wire_transfer_id(key), None)
            # Its threads may all be waiting for the store, and nobody wants to read any more.
            self._stores.pop((key, "source")).cancel()
            await source.close()
        destination = self.destinations.pop(key, None)
        if destination is None:
            return False
        self._note_release(key, destination.epoch)
        store = self._stores.pop((key, "sink"))
        store.cancel()
        await self._sink.detach(wire_transfer_id(key))
        store.reopen(_CLEARED_WITHIN_S)
        abandoned = destination.epoch if abandon else None
        return await asyncio.to_thread(destination.destination.close, abandoned_epoch=abandoned)

    def _note_release(self, key: str, epoch: int, *, is_heard: bool = False) -> None:
        over, heard = self._released.get(key, (0, 0))
        self._released[key] = (max(over, epoch), max(heard, epoch) if is_heard else heard)

    def end_waits(self) -> None:
        """The gateway ends: what waits for a store that throttles waits no longer."""
        for store in self._stores.values():
            store.cancel()

    def _is_throttled(self) -> bool:
        """Whether a store here throttles. The threads are shared: who waits for it may hold
        up who does not."""
        return any(store.is_throttling for store in self._stores.values())

    # -- what a lead asks for

    def source(self, key: str, epoch: int) -> SourceTransfer:
        """The source side of a transfer, for a lead of that epoch.

        Raises:
            UnknownTransfer: it was attached for an older one alone, in whose name its chunks
                would be refused, or not at all.
            StaleEpoch.
        """
        source = self.sources.get(key)
        if source is None or source.epoch < epoch:
            raise UnknownTransfer(
                f"{self._config.node} is no source of transfer {key} in epoch {epoch}"
            )
        if epoch < source.epoch:
            raise _stale(epoch, source.epoch)
        return source

    async def store_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a lead's verb on the destination.

        `describe` and `waiting` ask no store and are answered at once, whatever else waits
        here: what the destination can do, and which chunks are here whole but not written
        yet, because a store throttles, or for whatever reason since `for_s` seconds.

        Raises:
            UnknownTransfer, StaleEpoch.
            Throttled: the store has done so all the time; to be asked again.
            StoreUnavailable: the store has not answered; a caller would soon give up, and
                take this gateway for lost.
            StoreError: as the store says.
        """
        if verb == "describe":
            # Asked before the transfer is under way, and so no use of it yet.
            capabilities = asdict(self._sink_side(key, epoch).destination.store.capabilities)
            return {"capabilities": capabilities, "capacity_bytes": self._sink.capacity_bytes}
        if verb == "waiting":
            self._sink_side(key, epoch)
            for_s = 0.0 if self._is_throttled() else float(arguments.get("for_s", math.inf))
            held = self._sink.writing(wire_transfer_id(key), epoch, for_s)
            return {"chunks": [list(identity) for identity in held]}
        store = self._sink_side(key, epoch).destination.store.spec
        loop = asyncio.get_running_loop()
        threads, until_s = self._verb_threads, loop.time() + _VERB_WITHIN_S
        if _may_read(verb, arguments):
            threads, until_s = self._long_threads, math.inf
        running = loop.run_in_executor(
            threads, self._run_verb, key, epoch, verb, arguments, lambda: until_s - loop.time()
        )
        self._verbs.add(running)
        running.add_done_callback(self._verbs.discard)
        limit_s = verb_limit_s(verb, arguments) - _CALLER_GIVES_UP_S
        return await _answered(running, limit_s, f"{store.place} to {verb!r}")

    def _sink_side(self, key: str, epoch: int) -> SinkTransfer:
        state = self.destinations.get(key)
        if state is None:
            raise UnknownTransfer(f"{self._config.node} is no sink of transfer {key}")
        if epoch < state.epoch:
            raise _stale(epoch, state.epoch)
        return state

    def _run_verb(
        self,
        key: str,
        epoch: int,
        verb: str,
        arguments: Mapping[str, Any],
        left_s: Callable[[], float],
    ) -> dict[str, Any]:
        """`store_verb`, in a thread; `left_s` says how much longer it may wait."""
        state, store = self._sink_side(key, epoch), self._stores.get((key, "sink"))
        if store is None:
            raise UnknownTransfer(f"{self._config.node} lets go of transfer {key}")
        seconds = left_s()
        if seconds <= 0:
            raise Throttled(f"so many verbs wait for their store that {verb!r} had no turn")
        # A lead may have taken over while this end did not answer.
        state.is_used, state.epoch = True, max(state.epoch, epoch)
        with store.within(seconds):
            return state.destination.run(verb, arguments)

    def attached(self) -> dict[str, dict[str, Any]]:
        """Transfer key -> its newest epoch here, and whether anything was done in it."""
        found: dict[str, dict[str, Any]] = {}
        for ends in (self.sources, self.destinations):
            for key, end in ends.items():
                row = found.setdefault(key, {"epoch": end.epoch, "is_used": False})
                if end.epoch > row["epoch"]:
                    found[key] = {"epoch": end.epoch, "is_used": end.is_used}
                elif end.epoch == row["epoch"]:
                    row["is_used"] = row["is_used"] or end.is_used
        return found

    def released(self) -> dict[str, dict[str, int]]:
        """Transfer key -> the newest epoch that is over here (`epoch`), and the newest that
        ended well and was heard of (`heard`)."""
        return {
            key: {"epoch": over, "heard": heard} for key, (over, heard) in self._released.items()
        }

    async def finish_verbs(self) -> None:
        """Wait until no verb runs."""
        while self._verbs:
            await asyncio.wait(tuple(self._verbs))

    async def close(self) -> None:
        """Let go of everything."""
        for key in {*self.sources, *self.destinations}:
            async with self.lock(key):
                await self.release_locked(key)
        self.close_threads()

    def close_threads(self) -> None:
        """Run no more verbs; those that run are left to themselves."""
        self._verb_threads.shutdown(wait=False, cancel_futures=True)
        self._long_threads.shutdown(wait=False, cancel_futures=True)


async def _answered(running: asyncio.Future[T], limit_s: float, what: str) -> T:
    """What comes of a call that asks a store, if it comes in time.

    Raises:
        StoreUnavailable: it does not; its thread is left to itself.
    """
    try:
        async with asyncio.timeout(limit_s) as timeout:
            return await running
    except TimeoutError as error:
        if not timeout.expired():
            raise
        raise StoreUnavailable(
            f"no answer of the store {what} within {limit_s:g} s; see that it can be reached, "
            "then try again"
        ) from error


def _check(store: RetryingStore) -> None:
    """Ask the store at once, so that bad news comes early; that it throttles is none."""
    try:
        with store.within(_VERB_WITHIN_S):
            store.check()
    except Throttled as error:
        log.warning("the store %s throttles from the start: %s", store.spec.bucket, error)


def _stale(epoch: int, current: int) -> StaleEpoch:
    return StaleEpoch(f"epoch {epoch} is over, {current} is in charge")


def _may_read(verb: str, arguments: Mapping[str, Any]) -> bool:
    """Whether the verb may take long whatever the store's mood is: it reads an object."""
    return verb == "complete" or (verb == "head" and bool(arguments.get("checksum", False)))
