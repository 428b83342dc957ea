"""One gateway: the parts put together, and what the control API asks of them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from skyplane_gateway.config import CONTROL_VERSION, MIB, GatewayConfig, Topology, TransferSpec
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.destination import Destination, Verification
from skyplane_gateway.errors import (
    ConfigurationInvalid,
    GatewayLost,
    Overloaded,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.keeper import Keeper
from skyplane_gateway.lead.local_peers import LocalSink, LocalSource
from skyplane_gateway.lead.peers import RemoteSink, RemoteSource, SinkPeer, SourcePeer
from skyplane_gateway.lead.transfer import Crew, LeadTransfer
from skyplane_gateway.lease import Lease
from skyplane_gateway.links.routes import Routes
from skyplane_gateway.naming import gateway_uri, wire_fleet_id, wire_transfer_id
from skyplane_gateway.protocol import WIRE_VERSION, FrameHeader, Identity, ReceiptHeader
from skyplane_gateway.sink import Sink, SinkTransfer
from skyplane_gateway.source import SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import Credentials, StoreCapabilities, StoreSpec

log = logging.getLogger(__name__)

_LOG_TAIL_LIMIT: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class _Led:
    """A transfer that this gateway leads."""

    transfer: LeadTransfer
    task: asyncio.Task[None]


class GatewayService:
    """The state of one gateway process. All methods run on its event loop.

    Args:
        config: how to run.
        client_context: TLS for calls to other gateways.
        clock: monotonic seconds.
    """

    def __init__(
        self, config: GatewayConfig, client_context: ssl.SSLContext, clock: Callable[[], float]
    ) -> None:
        self.config = config
        self._client_context = client_context
        self._clock = clock
        self.lease = Lease(
            clock,
            start_within_s=config.start_within_s,
            lease_s=config.lease_s,
            hard_end_s=config.hard_end_s,
        )
        self._threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="store")
        # Verbs of a lead have threads of their own: they wait for a store only, never for
        # another gateway, so no ring of gateways can wait for one another.
        self._verb_threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="verb")
        fleet = wire_fleet_id(config.fleet_key)
        identity = Identity(fleet, config.node, bytes.fromhex(config.hello_key_hex))
        self.routes = Routes(
            config.node, identity, self._on_frame, self._on_receipt, self._on_route_down
        )
        self.sink = Sink(
            capacity_bytes=config.assembly_mib * MIB,
            send_receipt=self.routes.send_receipt,
            threads=self._threads,
        )
        self.sources: dict[str, SourceTransfer] = {}
        self._source_of_wire_id: dict[bytes, SourceTransfer] = {}
        self._destinations: dict[str, SinkTransfer] = {}
        self._leads: dict[str, _Led] = {}
        #: Transfer key -> what keeps attach, submit, cancel and release of it apart.
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._keeper = Keeper(
            self.lease,
            lease_s=config.lease_s,
            patience_s=2 * config.ack_deadline_s,
            progress=self._progress,
            others=self._others,
            connect=self._client,
            clock=clock,
        )
        self._is_draining = False
        self.shutdown_reason = ""
        self.shutdown_requested = asyncio.Event()

    # -- the data path

    def _on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        self.sink.on_frame(header, sealed)

    def _on_receipt(self, header: ReceiptHeader, sealed: memoryview) -> None:
        source = self._source_of_wire_id.get(header.transfer)
        if source is not None:
            source.on_receipt(header, sealed)

    def _on_route_down(self, number: int, reason: str) -> None:
        for source in self.sources.values():
            source.route_is_down(number, reason)
        for led in self._leads.values():
            led.transfer.route_is_down(number, reason)

    def apply_topology(self, topology: Topology) -> None:
        """Take up routes; see `Routes.apply`."""
        self.routes.apply(topology, self.config.data_host)

    def may_lead(self, node: str) -> bool:
        """Whether a gateway may ask for what a lead needs: it is a source of the fleet."""
        topology = self.routes.topology
        return topology is not None and node in topology.sources

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
            async with self._locks[key]:
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
        if current is not None and current.epoch > epoch:
            raise _stale(epoch, current.epoch)
        if current is not None and current.epoch == epoch:
            led = self._leads.get(key)
            if current.is_used or (led is not None and not led.task.done()):
                return False
        fresh = SourceTransfer(
            fleet=wire_fleet_id(self.config.fleet_key),
            transfer=wire_transfer_id(key),
            epoch=epoch,
            store=store,
            send_frame=self.routes.send_frame,
            threads=self._threads,
            readers=self.config.readers,
        )
        self.sources[key] = self._source_of_wire_id[wire_transfer_id(key)] = fresh
        if current is not None:
            await current.close()
        return True

    async def _attach_sink(self, key: str, epoch: int, store: Any, verify: Any) -> bool:
        """Whether the store is in use now."""
        current = self._destinations.get(key)
        if current is not None and current.epoch > epoch:
            raise _stale(epoch, current.epoch)
        if current is not None and current.epoch == epoch and current.is_used:
            return False
        fresh = SinkTransfer(epoch, Destination(store, verify))
        self._destinations[key] = fresh
        self.sink.attach(wire_transfer_id(key), fresh)
        if current is not None:
            await asyncio.to_thread(current.destination.close)
        return True

    async def release(self, key: str) -> None:
        """Forget a transfer's stores and credentials; abort uploads still open here.

        Returns once nothing is written for it any more.
        """
        async with self._locks[key]:
            await self._release(key)

    async def _release(self, key: str) -> None:
        source = self.sources.pop(key, None)
        if source is not None:
            self._source_of_wire_id.pop(wire_transfer_id(key), None)
            await source.close()
        destination = self._destinations.pop(key, None)
        if destination is not None:
            await self.sink.detach(wire_transfer_id(key))
            await asyncio.to_thread(destination.destination.close)

    # -- the lead

    def source(self, key: str, epoch: int) -> SourceTransfer:
        """The source side of a transfer, for a lead of that epoch.

        Raises:
            UnknownTransfer, StaleEpoch.
        """
        source = self.sources.get(key)
        if source is None:
            raise UnknownTransfer(f"{self.config.node} is no source of transfer {key}")
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
            self._verb_threads, self._run_verb, key, epoch, verb, arguments
        )

    def _run_verb(
        self, key: str, epoch: int, verb: str, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        state = self._destinations.get(key)
        if state is None:
            raise UnknownTransfer(f"{self.config.node} is no sink of transfer {key}")
        if epoch < state.epoch:
            raise _stale(epoch, state.epoch)
        if verb == "describe":
            # Asked before the transfer is under way, and so no use of it yet.
            capabilities = asdict(state.destination.store.capabilities)
            return {"capabilities": capabilities, "capacity_bytes": self.sink.capacity_bytes}
        state.is_used = True
        return state.destination.run(verb, arguments)

    def lead(self, key: str) -> LeadTransfer:
        """The transfer that this gateway leads or led.

        Raises:
            UnknownTransfer: it leads no such transfer.
        """
        led = self._leads.get(key)
        if led is None:
            raise UnknownTransfer(f"{self.config.node} does not lead transfer {key}")
        return led.transfer

    async def submit(self, key: str, *, epoch: int, spec: TransferSpec) -> dict[str, Any]:
        """Lead a transfer, or join it when it runs already.

        Raises:
            UnknownTransfer: this end was not attached before.
            GatewayLost: a path of the fleet is down.
            Overloaded: the gateway is draining.
        """
        async with self._locks[key]:
            return await self._submit(key, epoch, spec)

    async def _submit(self, key: str, epoch: int, spec: TransferSpec) -> dict[str, Any]:
        led = self._leads.get(key)
        if led is not None and (not led.task.done() or led.transfer.epoch >= epoch):
            return {"joined": True, "epoch": led.transfer.epoch}
        if self._is_draining:
            raise Overloaded(f"{self.config.node} is draining and takes no new transfer")
        topology = self._usable_topology()
        self.source(key, epoch)
        sources, sinks = self._peers(key, epoch, topology)
        peers: list[SourcePeer | SinkPeer] = [*sources, *sinks]
        try:
            descriptions = {
                sink.node: await asyncio.to_thread(sink.call, "describe", {}) for sink in sinks
            }
            transfer = LeadTransfer(
                transfer_key=key,
                epoch=epoch,
                spec=spec,
                topology=topology,
                crew=Crew(
                    store=self.sources[key].store,
                    sources={source.node: source for source in sources},
                    sinks=sinks,
                    capabilities=StoreCapabilities(**descriptions[sinks[0].node]["capabilities"]),
                    sink_capacity_bytes={
                        node: int(row["capacity_bytes"]) for node, row in descriptions.items()
                    },
                ),
                ack_deadline_s=self.config.ack_deadline_s,
                clock=self._clock,
            )
        except SkyplaneError:
            _close_all(peers)
            raise
        await self._keeper.renew_fleet()
        if led is not None:
            led.transfer.report.close()
        task = asyncio.create_task(transfer.run())
        self._leads[key] = _Led(transfer, task)
        task.add_done_callback(lambda _: _close_all(peers))
        log.info("leading transfer %s, epoch %d", key, epoch)
        return {"joined": False, "epoch": epoch}

    def _usable_topology(self) -> Topology:
        topology = self.routes.topology
        if topology is None or self.config.node not in topology.sources:
            raise ConfigurationInvalid(f"{self.config.node} is no source gateway; submit to one")
        for row in self.routes.statistics():
            if row["down"]:
                raise GatewayLost(str(row["down"]))
        return topology

    def _peers(
        self, key: str, epoch: int, topology: Topology
    ) -> tuple[list[SourcePeer], list[SinkPeer]]:
        sources: list[SourcePeer] = []
        sinks: list[SinkPeer] = []
        for node in topology.sources:
            if node == self.config.node:
                loop = asyncio.get_running_loop()
                sources.append(LocalSource(node, self.sources[key], loop))
            else:
                sources.append(RemoteSource(node, self._client(node), key, epoch))
        for node in topology.sinks:
            if node == self.config.node:
                sinks.append(
                    LocalSink(node, lambda verb, args: self._run_verb(key, epoch, verb, args))
                )
            else:
                sinks.append(RemoteSink(node, self._client(node), key, epoch))
        return sources, sinks

    def _client(self, node: str) -> ControlClient:
        topology = self.routes.topology
        if topology is None:
            raise ConfigurationInvalid(f"{self.config.node} has no topology yet")
        host, port = topology.control_addresses[node]
        return ControlClient(
            host, port, self._client_context, gateway_uri(self.config.fleet_key, node)
        )

    async def cancel(self, key: str) -> None:
        """Stop leading a transfer and forget this end of it. Idempotent."""
        async with self._locks[key]:
            led = self._leads.get(key)
            if led is not None and not led.task.done():
                led.task.cancel()
                await asyncio.wait({led.task})
            await self._release(key)

    # -- life and death

    def drain(self) -> None:
        """Take no new transfer."""
        self._is_draining = True

    def request_shutdown(self, reason: str) -> None:
        """End soon; the first reason is the one that is logged."""
        if not self.shutdown_requested.is_set():
            self.shutdown_reason = reason
            self.shutdown_requested.set()

    async def keep_alive(self) -> None:
        """Renew leases while a led transfer makes progress; end when the lease does."""
        await self._keeper.run()
        self.request_shutdown("the lease has expired")

    def _progress(self) -> tuple[Any, ...] | None:
        """How far the transfers led here are; None when none is running."""
        running = [led.transfer for led in self._leads.values() if not led.task.done()]
        return tuple(transfer.progress() for transfer in running) or None

    def _others(self) -> list[str]:
        topology = self.routes.topology
        nodes = topology.control_addresses if topology is not None else {}
        return [node for node in nodes if node != self.config.node]

    async def close(self) -> None:
        """Cancel what is led, abort what is open, close every connection."""
        running = [led.task for led in self._leads.values() if not led.task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for led in self._leads.values():
            led.transfer.report.close()
        await self.sink.drain()
        for key in {*self.sources, *self._destinations}:
            await self.release(key)
        self.routes.close()
        for threads in (self._threads, self._verb_threads):
            threads.shutdown(wait=False, cancel_futures=True)

    # -- what others may know

    def status(self) -> dict[str, Any]:
        """The gateway's status document; readable by neighbouring versions."""
        return {
            "version": CONTROL_VERSION,
            "wire_version": WIRE_VERSION,
            "node": self.config.node,
            "fleet": self.config.fleet_key,
            "state": "draining" if self._is_draining else "running",
            "connected": self.routes.is_connected,
            "lease_remaining_s": self.lease.remaining_s,
            "held_bytes": self.sink.held_bytes,
            "routes": self.routes.statistics(),
            "leading": {key: led.transfer.status() for key, led in self._leads.items()},
            "attached": self._attached(),
        }

    def _attached(self) -> dict[str, dict[str, Any]]:
        """Transfer key -> its newest epoch here, and whether anything was done in it."""
        found: dict[str, dict[str, Any]] = {}
        for ends in (self.sources, self._destinations):
            for key, end in ends.items():
                row = found.setdefault(key, {"epoch": end.epoch, "is_used": False})
                if end.epoch > row["epoch"]:
                    found[key] = {"epoch": end.epoch, "is_used": end.is_used}
                elif end.epoch == row["epoch"]:
                    row["is_used"] = row["is_used"] or end.is_used
        return found

    def log_tail(self, max_bytes: int) -> str:
        """The last bytes of the log; empty when it goes elsewhere."""
        path = self.config.log_path
        if not path.exists():
            return ""
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - min(max_bytes, _LOG_TAIL_LIMIT)))
            return file.read().decode(errors="replace")


def _close_all(peers: Sequence[SourcePeer | SinkPeer]) -> None:
    for peer in peers:
        peer.close()


def _stale(epoch: int, current: int) -> StaleEpoch:
    return StaleEpoch(f"epoch {epoch} is over, {current} is in charge")
