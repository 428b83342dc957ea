"""The ends of transfers at one gateway: what it reads from, and what it writes to."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, get_args

from skyplane_gateway.config import GatewayConfig
from skyplane_gateway.destination import Destination, Verification
from skyplane_gateway.errors import ConfigurationInvalid, StaleEpoch, UnknownTransfer
from skyplane_gateway.naming import wire_fleet_id, wire_transfer_id
from skyplane_gateway.protocol import ReceiptHeader
from skyplane_gateway.sink import Sink, SinkTransfer
from skyplane_gateway.source import SendFrame, SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import Credentials, StoreSpec


class Ends:
    """Sources and destinations by transfer key. All methods run on the event loop.

    Args:
        config: how the gateway runs.
        sink: puts together what arrives here.
        send_frame: sends a frame down its route.
        threads: where chunks are read and written.
        is_led: whether this gateway leads the transfer of that key now.
        why_down: why the route of that number is down; empty while it is not.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        sink: Sink,
        send_frame: SendFrame,
        threads: Executor,
        is_led: Callable[[str], bool],
        why_down: Callable[[int], str] = lambda number: "",
    ) -> None:
        self._config = config
        self._sink = sink
        self._send_frame = send_frame
        self._threads = threads
        self._is_led = is_led
        self._why_down = why_down
        # Verbs of a lead have threads of their own: they wait for a store only, never for
        # another gateway, so no ring of gateways can wait for one another.
        self._verb_threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="verb")
        self.sources: dict[str, SourceTransfer] = {}
        self._source_of_wire_id: dict[bytes, SourceTransfer] = {}
        self.destinations: dict[str, SinkTransfer] = {}
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

    def route_is_down(self, number: int, reason: str) -> None:
        """Tell every source that a path of the fleet broke."""
        for source in self.sources.values():
            source.route_is_down(number, reason)

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
            await loop.run_in_executor(self._verb_threads, opened.check)
            async with self.lock(key):
                if side == "source":
                    is_taken = await self._attach_source(key, epoch, opened)
                else:
                    is_taken = await self._attach_sink(key, epoch, opened, verify)
        finally:
            if not is_taken:
                await loop.run_in_executor(self._verb_threads, opened.close)
        return {}

    async def _attach_source(self, key: str, epoch: int, store: Any) -> bool:
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
            why_down=self._why_down,
        )
        self.sources[key] = self._source_of_wire_id[wire_transfer_id(key)] = fresh
        if current is not None:
            await current.close()
        return True

    async def _attach_sink(self, key: str, epoch: int, store: Any, verify: Any) -> bool:
        """Whether the store is in use now."""
        current = self.destinations.get(key)
        if current is not None and current.epoch > epoch:
            raise _stale(epoch, current.epoch)
        if current is not None and current.epoch == epoch and current.is_used:
            return False
        fresh = SinkTransfer(epoch, Destination(store, verify))
        self.destinations[key] = fresh
        self._sink.attach(wire_transfer_id(key), fresh)
        if current is not None:
            await asyncio.to_thread(current.destination.close)
        return True

    async def release(self, key: str) -> None:
        """Forget a transfer's stores and credentials; abort uploads still open here that no
        journal names.

        Returns once nothing is written for it any more.
        """
        async with self.lock(key):
            await self.release_locked(key)

    async def release_locked(self, key: str, *, abandon: bool = False) -> None:
        """`release` for a caller that holds the transfer's lock.

        Args:
            abandon: the transfer was cancelled: abort what its journals name as well.
        """
        source = self.sources.pop(key, None)
        if source is not None:
            self._source_of_wire_id.pop(wire_transfer_id(key), None)
            await source.close()
        destination = self.destinations.pop(key, None)
        if destination is not None:
            await self._sink.detach(wire_transfer_id(key))
            await asyncio.to_thread(destination.destination.close, abandon=abandon)

    # -- what a lead asks for

    def source(self, key: str, epoch: int) -> SourceTransfer:
        """The source side of a transfer, for a lead of that epoch.

        Raises:
            UnknownTransfer, StaleEpoch.
        """
        source = self.sources.get(key)
        if source is None:
            raise UnknownTransfer(f"{self._config.node} is no source of transfer {key}")
        if epoch < source.epoch:
            raise _stale(epoch, source.epoch)
        return source

    async def store_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Run a lead's verb on the destination.

        Raises:
            UnknownTransfer, StaleEpoch, StoreError.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._verb_threads, self.run_verb, key, epoch, verb, arguments
        )

    def run_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """`store_verb`, in the calling thread."""
        state = self.destinations.get(key)
        if state is None:
            raise UnknownTransfer(f"{self._config.node} is no sink of transfer {key}")
        if epoch < state.epoch:
            raise _stale(epoch, state.epoch)
        if verb == "describe":
            # Asked before the transfer is under way, and so no use of it yet.
            capabilities = asdict(state.destination.store.capabilities)
            return {"capabilities": capabilities, "capacity_bytes": self._sink.capacity_bytes}
        state.is_used = True
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

    async def close(self) -> None:
        """Let go of everything."""
        for key in {*self.sources, *self.destinations}:
            await self.release(key)
        self._verb_threads.shutdown(wait=False, cancel_futures=True)


def _stale(epoch: int, current: int) -> StaleEpoch:
    return StaleEpoch(f"epoch {epoch} is over, {current} is in charge")
