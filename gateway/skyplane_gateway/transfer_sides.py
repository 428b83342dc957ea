"""The source and sink sides of transfers at this gateway."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import GatewayLost, StaleEpoch, Throttled, UnknownTransfer
from skyplane_gateway.common.identifiers import wire_fleet_id, wire_transfer_id
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.config import AttachOrder, GatewayConfig, Group
from skyplane_gateway.control.client import is_slow_verb, verb_timeout_s
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.sink.destination import Destination
from skyplane_gateway.sink.receiver import Sink, SinkTransfer
from skyplane_gateway.sink.verb_threads import VerbThreads
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.join import Join
from skyplane_gateway.source.transfer import Routes, SourceGateway, SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.wrappers.retrying import RetryingStore

log = logging.getLogger(__name__)

#: A verb waits so long for a store that throttles, then the lead asks again. The lead waits
#: longer for the response: it must not take a patient sink for a lost one.
_THROTTLE_TIMEOUT_S: Final = 20.0

#: An endpoint responds so long before its caller gives up.
_RESPONSE_MARGIN_S: Final = 5.0

#: The first request to a store; the caller of attach waits for a minute.
_CHECK_TIMEOUT_S: Final = 50.0

#: Limit of the requests that remove what a transfer left; the sweep removes the rest.
_CLEANUP_TIMEOUT_S: Final = 10.0


class EndedEpochs:
    """The epochs that are over here, by transfer key: late orders of one are told from new ones."""

    def __init__(self) -> None:
        #: The newest that is over, and the newest whose success was acknowledged; 0 for none.
        self._newest: dict[str, tuple[int, int]] = {}

    def note(self, key: str, epoch: int, *, is_heard: bool = False) -> None:
        """An epoch is over. `is_heard`: an orchestrator has acknowledged its success."""
        over, heard = self._newest.get(key, (0, 0))
        self._newest[key] = (max(over, epoch), max(heard, epoch) if is_heard else heard)

    def rows(self) -> dict[str, dict[str, int]]:
        """Transfer key -> the newest epoch that is over (`epoch`) and acknowledged (`heard`)."""
        return {key: {"epoch": over, "heard": heard} for key, (over, heard) in self._newest.items()}


class TransferSides:
    """Source and sink sides by transfer key. All methods run on the event loop.

    Args:
        threads: for chunks.
        is_led: whether this gateway leads the transfer of that key now.
        routes: of this gateway.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        sink: Sink,
        routes: Routes,
        threads: Executor,
        is_led: Callable[[str], bool],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._clock = clock
        self._config = config
        self._sink = sink
        self._is_led = is_led
        self._gateway = SourceGateway(
            config.node,
            wire_fleet_id(config.fleet_key),
            routes,
            threads,
            config.readers,
            self._is_throttled,
            Bandwidth(),
        )
        self.verb_threads = VerbThreads(config.store_threads)
        self.sources: dict[str, SourceTransfer] = {}
        #: Key of a group -> what joins the orders of its transfers here.
        self._joins: dict[str, Join] = {}
        self._source_of_wire_id: dict[bytes, SourceTransfer] = {}
        self.destinations: dict[str, SinkTransfer] = {}
        #: (transfer key, side) -> the store that is open for it.
        self._stores: dict[tuple[str, str], RetryingStore] = {}
        self.ended_epochs = EndedEpochs()
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def lock(self, key: str) -> asyncio.Lock:
        """Serialises attach, submit, cancel and release of one transfer."""
        return self._locks[key]

    # -- the data path

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None:
        """Pass a receipt to its source."""
        source = self._source_of_wire_id.get(header.transfer)
        if source is not None:
            source.on_receipt(header, sealed)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        for source in self.sources.values():
            source.route_is_down(number, loss)

    # -- attach

    async def attach(self, key: str, order: AttachOrder) -> None:
        """Open the store of one side, and send it one request so that errors come early.

        A side that works for that epoch already stays as it is: two orchestrators may submit
        the same transfer, and the second joins.

        Raises:
            StoreError: the bucket is missing, access is denied, or the store does not respond.
            StaleEpoch: a newer epoch is in charge here.
        """
        wire_transfer_id(key)
        opened = open_store(order.store, order.credentials)
        is_used = False
        try:
            if (prefix := order.tried_prefix) is not None:
                await self.verb_threads.run(
                    lambda _: _check(opened, prefix),
                    store_timeout_s=math.inf,
                    limit_s=_CHECK_TIMEOUT_S,
                    what=order.store.place,
                )
            opened.wait_for_credentials()
            async with self.lock(key):
                if order.side == "source":
                    is_used = await self._attach_source(key, order, opened)
                    self._gateway.bandwidth.limit(wire_transfer_id(key), order.bytes_per_s)
                else:
                    is_used = await self._attach_sink(key, order, opened)
        finally:
            if not is_used:
                await asyncio.get_running_loop().run_in_executor(None, opened.close)

    async def _attach_source(self, key: str, order: AttachOrder, store: RetryingStore) -> bool:
        """Returns whether the store is in use now."""
        current = self.sources.get(key)
        if current is not None:
            _refuse_stale(order.epoch, current.epoch)
            if current.epoch == order.epoch and (current.is_used or self._is_led(key)):
                return False
        transfer = wire_transfer_id(key)
        join = self._join_of(order.group) if order.group is not None else None
        sealing = _sealing(order.sealing_key)
        fresh = SourceTransfer(self._gateway, transfer, order.epoch, store, sealing, join)
        former = self._stores.get((key, "source"))
        self._stores[key, "source"] = store
        self.sources[key] = self._source_of_wire_id[transfer] = fresh
        if current is not None and former is not None:
            former.cancel()
            await current.close()
        if join is not None:
            join.enter(transfer)
        return True

    def _join_of(self, group: Group) -> Join:
        known = self._joins.get(group.key)
        if known is None:
            known = self._joins[group.key] = Join(
                self._gateway.fleet,
                wire_transfer_id(group.key),
                [wire_transfer_id(key) for key in group.members],
                self._gateway.routes,
                _sealing(group.sealing_key),
            )
        return known

    async def _attach_sink(self, key: str, order: AttachOrder, store: RetryingStore) -> bool:
        """Returns whether the store is in use now."""
        current = self.destinations.get(key)
        if current is not None:
            _refuse_stale(order.epoch, current.epoch)
            if current.epoch == order.epoch and current.is_used:
                return False
        former = self._stores.get((key, "sink"))
        self._stores[key, "sink"] = store
        destination = Destination(store, order.verify, self._clock)
        fresh = SinkTransfer(order.epoch, destination, _sealing(order.sealing_key))
        self.destinations[key] = fresh
        self._sink.attach(wire_transfer_id(key), fresh)
        if (group := order.group) is not None:
            sealing = _sealing(group.sealing_key)
            self._sink.attach_group(wire_transfer_id(group.key), wire_transfer_id(key), sealing)
        if current is not None and former is not None:
            former.cancel()
            former.reopen(_CLEANUP_TIMEOUT_S)
            await asyncio.to_thread(current.destination.close)
        return True

    async def renew_credentials(
        self, key: str, *, epoch: int, side: str, credentials: Credentials
    ) -> dict[str, Any]:
        """Give an attached side fresh credentials; requests that wait for them continue.

        Raises:
            UnknownTransfer: this side is not attached here.
            StaleEpoch: a newer epoch is in charge here.
            ConfigurationInvalid: the store cannot be opened with them.
        """
        async with self.lock(key):
            attached: Mapping[str, SourceTransfer | SinkTransfer]
            attached = self.sources if side == "source" else self.destinations
            store, transfer = self._stores.get((key, side)), attached.get(key)
            if store is None or transfer is None:
                raise UnknownTransfer(f"{self._config.node} is no {side} of transfer {key}")
            _refuse_stale(epoch, transfer.epoch)
            await asyncio.to_thread(store.renew_credentials, credentials)
        return {}

    def needs_credentials(self, key: str) -> list[str]:
        """The sides of a transfer here whose credentials have expired, or soon will."""
        return [
            side
            for (owner, side), store in self._stores.items()
            if owner == key and store.needs_credentials
        ]

    # -- release

    async def release(self, key: str, epoch: int, journals_in: str | None = None) -> bool:
        """Close a transfer's stores, and abort its open uploads that no journal names.

        Does nothing once a newer epoch is in charge here.

        Args:
            journals_in: folder of its journals, to be removed: the orchestrator knows of the
                success, so no resume needs them.

        Returns:
            Whether the journals were removed; nothing is written for the transfer any more.
        """
        async with self.lock(key):
            attached = self.attached().get(key)
            if attached is not None and attached["epoch"] > epoch:
                return False
            self.ended_epochs.note(key, epoch, is_heard=journals_in is not None)
            destination = self.destinations.get(key)
            if destination is not None and journals_in is not None:
                destination.destination.note_journals(journals_in, key)
            return await self.release_locked(key, abandon=journals_in is not None)

    async def release_locked(self, key: str, *, abandon: bool = False) -> bool:
        """`release` for a caller that holds the transfer's lock.

        Args:
            abandon: no resume will follow: also abort the uploads that the journals name, and
                remove the journals.

        Returns:
            Whether the journals were removed.
        """
        source = self.sources.pop(key, None)
        if source is not None:
            self._gateway.bandwidth.limit(wire_transfer_id(key), None)
            self.ended_epochs.note(key, source.epoch)
            self._source_of_wire_id.pop(wire_transfer_id(key), None)
            # All threads may be waiting for this store.
            self._stores.pop((key, "source")).cancel()
            try:
                await source.close()
            finally:
                for group, join in tuple(self._joins.items()):
                    if join.leave(wire_transfer_id(key)):
                        del self._joins[group]
        destination = self.destinations.pop(key, None)
        if destination is None:
            return False
        self.ended_epochs.note(key, destination.epoch)
        (store := self._stores.pop((key, "sink"))).cancel()
        await self._sink.detach(wire_transfer_id(key))
        store.reopen(_CLEANUP_TIMEOUT_S)
        ended = destination.epoch if abandon else None
        return await asyncio.to_thread(destination.destination.close, abandoned_epoch=ended)

    def end_waits(self) -> None:
        """Cancel every wait for a store: the gateway ends."""
        for store in self._stores.values():
            store.cancel()

    def _is_throttled(self) -> bool:
        """Whether any store here throttles: it may delay the others, the threads are shared."""
        return any(store.is_throttling for store in self._stores.values())

    # -- requests of a lead

    def source(self, key: str, epoch: int) -> SourceTransfer:
        """The source side of a transfer, for a lead of that epoch.

        Raises:
            UnknownTransfer: it is not attached, or only for an older epoch.
            StaleEpoch: a newer epoch is in charge here.
        """
        source = self.sources.get(key)
        if source is None or source.epoch < epoch:
            where = f"{self._config.node} is no source"
            raise UnknownTransfer(f"{where} of transfer {key} in epoch {epoch}")
        _refuse_stale(epoch, source.epoch)
        return source

    async def store_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a lead's verb on the destination.

        Two verbs send no request to the store. `describe` gives its capabilities. `chunks` gives
        the state of those that are complete here but not written: all wait while a store throttles,
        else those that are complete since `for_s` seconds.

        Raises (besides StoreError):
            UnknownTransfer, StaleEpoch: this side does not serve that lead.
            Throttled: the store throttled all the time; ask again.
            StoreUnavailable: the store did not respond before the caller's timeout.
        """
        destination = self._sink_side(key, epoch).destination
        if verb == "describe":
            can = asdict(destination.store.capabilities)
            return {"capabilities": can, "capacity_bytes": self._sink.capacity_bytes}
        if verb == "chunks":
            for_s = 0.0 if self._is_throttled() else float(arguments.get("for_s", math.inf))
            return {"chunks": self._sink.chunks(wire_transfer_id(key), epoch, for_s)}
        is_slow = is_slow_verb(verb, arguments)
        return await self.verb_threads.run(
            partial(self._run_verb, key, epoch, verb, arguments),
            store_timeout_s=math.inf if is_slow else _THROTTLE_TIMEOUT_S,
            limit_s=verb_timeout_s(verb, arguments) - _RESPONSE_MARGIN_S,
            what=f"{destination.store.spec.place} to {verb!r}",
            is_slow=is_slow,
        )

    def _sink_side(self, key: str, epoch: int) -> SinkTransfer:
        state = self.destinations.get(key)
        if state is None:
            raise UnknownTransfer(f"{self._config.node} is no sink of transfer {key}")
        _refuse_stale(epoch, state.epoch)
        return state

    def _run_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any], timeout_s: float
    ) -> dict[str, Any]:
        """`store_verb` in its thread; a throttled store is retried for `timeout_s`."""
        state, store = self._sink_side(key, epoch), self._stores.get((key, "sink"))
        if store is None:
            raise UnknownTransfer(f"{self._config.node} is releasing transfer {key}")
        # A new lead may have begun without attaching this sink, which did not respond then.
        state.is_used, state.epoch = True, max(state.epoch, epoch)
        with store.within(timeout_s):
            return state.destination.run(verb, arguments)

    # -- status

    def attached(self) -> dict[str, dict[str, Any]]:
        """Transfer key -> its newest epoch here, and whether a lead has used it."""
        found: dict[str, dict[str, Any]] = {}
        for sides in (self.sources, self.destinations):
            for key, side in sides.items():
                row = found.setdefault(key, {"epoch": side.epoch, "is_used": False})
                if side.epoch > row["epoch"]:
                    found[key] = {"epoch": side.epoch, "is_used": side.is_used}
                elif side.epoch == row["epoch"]:
                    row["is_used"] = row["is_used"] or side.is_used
        return found

    # -- the end

    async def close(self) -> None:
        """Release every transfer."""
        for key in {*self.sources, *self.destinations}:
            async with self.lock(key):
                await self.release_locked(key)
        self.verb_threads.close()


def _check(store: RetryingStore, prefix: str) -> None:
    """Send one request to the store; throttling is no error."""
    try:
        with store.within(_THROTTLE_TIMEOUT_S):
            store.check(prefix)
    except Throttled as error:
        log.warning("the store %s throttles from the start: %s", store.spec.bucket, error)


def _sealing(key: str | None) -> Sealing:
    if key is None:
        return UNSEALED
    from skyplane_gateway.protocol.aes_gcm import INCARNATION_BYTES, sealing_of

    return sealing_of(bytes.fromhex(key), os.urandom(INCARNATION_BYTES))


def _refuse_stale(epoch: int, current: int) -> None:
    if epoch < current:
        raise StaleEpoch(f"epoch {epoch} is over, {current} is in charge")
