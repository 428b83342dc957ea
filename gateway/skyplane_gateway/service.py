"""One gateway: the parts put together, and what the control API asks of them."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import CONTROL_VERSION, MIB, GatewayConfig, Topology, TransferSpec
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.endpoints import Ends
from skyplane_gateway.errors import (
    AddressTaken,
    ConfigurationInvalid,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.identifiers import gateway_uri, wire_fleet_id
from skyplane_gateway.lead.peers import (
    LocalSink,
    LocalSource,
    RemoteSink,
    RemoteSource,
    SinkPeer,
    SourcePeer,
)
from skyplane_gateway.lead.transfer import Crew, LeadTransfer
from skyplane_gateway.lease import Lease, LeaseRenewer
from skyplane_gateway.objects import StoreCapabilities
from skyplane_gateway.pending_connections import MOST_ON_DATA_PORT, affordable
from skyplane_gateway.pollers import Pollers
from skyplane_gateway.protocol import WIRE_VERSION, FrameHeader, Identity, ReceiptHeader
from skyplane_gateway.sink.receiver import Sink
from skyplane_gateway.transport.router import Routes

log = logging.getLogger(__name__)

_LOG_TAIL_LIMIT: Final = 1 << 20

#: Whoever submits waits ten seconds for the answer; gateways that hang take up less.
_DESCRIBED_WITHIN_S: Final = 5.0
_RENEWED_WITHIN_S: Final = 2.0

#: A gateway whose machine is wanted back has so long to finish; clouds give 30 s in all.
_FINISHED_WITHIN_S: Final = 15.0


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
        clock: measures the time.
        rng: source of random numbers; the system's by default.
    """

    def __init__(
        self,
        config: GatewayConfig,
        client_context: ssl.SSLContext,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self._client_context = client_context
        self._clock = clock
        self._rng = rng or random.SystemRandom()
        self.lease = Lease(
            clock,
            start_within_s=config.start_within_s,
            lease_s=config.lease_s,
            hard_end_s=config.hard_end_s,
        )
        self._threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="store")
        fleet = wire_fleet_id(config.fleet_key)
        keys = {peer: bytes.fromhex(key) for peer, key in config.hello_keys_hex.items()}
        identity = Identity(fleet, config.node, keys)
        self.routes = Routes(
            config.node,
            identity,
            self._on_frame,
            self._on_receipt,
            self._on_route_down,
            on_up=self._on_route_up,
            clock=clock,
            rng=self._rng,
            write_timeout_s=config.write_timeout_s,
            strangers=affordable(MOST_ON_DATA_PORT),
        )
        self.sink = Sink(
            capacity_bytes=config.assembly_mib * MIB,
            send_receipt=self.routes.send_receipt,
            threads=self._threads,
            node=config.node,
        )
        self.ends = Ends(
            config,
            sink=self.sink,
            send_frame=self.routes.send_frame,
            threads=self._threads,
            is_led=self._is_led,
            loss_of=self.routes.loss,
        )
        self._leads: dict[str, _Led] = {}
        self.followers = Pollers(clock)
        self._renewer = LeaseRenewer(
            self.lease,
            lease_s=config.lease_s,
            patience_s=config.stalled_after_s,
            progress=self._progress,
            others=self._others,
            connect=self._client,
            clock=clock,
        )
        self._renewals: set[asyncio.Task[None]] = set()
        self._is_draining = False
        self._is_ending = False
        #: Told to end by its machine, not by its orchestrator nor its lease.
        self.is_leaving = False
        self.shutdown_reason = ""
        self.shutdown_requested = asyncio.Event()

    # -- the data path

    def _on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        self.sink.on_frame(header, sealed)

    def _on_receipt(self, header: ReceiptHeader, sealed: memoryview) -> None:
        self.ends.on_receipt(header, sealed)

    def _on_route_down(self, number: int, reason: str) -> None:
        loss = self.routes.loss(number, reason) or GatewayLost(reason)
        self.ends.route_is_down(number, loss)
        self.sink.route_is_down(number)
        for transfer in self._sending_by(number):
            transfer.route_is_down(number, loss)

    def _on_route_up(self, number: int) -> None:
        for transfer in self._sending_by(number):
            transfer.route_is_up(number)

    def _sending_by(self, number: int) -> list[LeadTransfer]:
        """Transfers led here that use the route of that number, if it begins here.

        Of routes that begin elsewhere their sources know better.
        """
        topology = self.routes.topology
        routes = topology.routes if topology is not None else ()
        if not any(row.number == number and row.nodes[0] == self.config.node for row in routes):
            return []
        running = [led.transfer for led in self._leads.values() if not led.task.done()]
        return [transfer for transfer in running if transfer.uses(number)]

    def apply_topology(self, topology: Topology) -> None:
        """Take up routes; see `Routes.apply`."""
        self.routes.apply(topology, self.config.data_host)

    def may_lead(self, node: str) -> bool:
        """Whether a gateway may ask for what a lead needs: it is a source of the fleet."""
        topology = self.routes.topology
        return topology is not None and node in topology.sources

    # -- the lead

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
            GatewayLost: no path of the fleet is up, or no sink answers.
            GatewayDraining: the gateway takes no new transfer.
        """
        async with self.ends.lock(key):
            return await self._submit(key, epoch, spec)

    async def _submit(self, key: str, epoch: int, spec: TransferSpec) -> dict[str, Any]:
        led = self._leads.get(key)
        if led is not None and (not led.task.done() or led.transfer.epoch >= epoch):
            return {"joined": True, "epoch": led.transfer.epoch}
        self._require_open()
        topology = self._usable_topology()
        self.ends.source(key, epoch)
        sources, sinks = self._peers(key, epoch, topology)
        peers: list[SourcePeer | SinkPeer] = [*sources, *sinks]
        try:
            capabilities, capacity_bytes = await self._describe(sinks)
            transfer = LeadTransfer(
                transfer_key=key,
                epoch=epoch,
                spec=spec,
                topology=topology,
                crew=Crew(
                    store=self.ends.sources[key].store,
                    sources={source.node: source for source in sources},
                    sinks=sinks,
                    capabilities=capabilities,
                    sink_capacity_bytes=capacity_bytes,
                    threads=self._threads,
                ),
                ack_deadline_s=self.config.ack_deadline_s,
                stall_deadline_s=self.config.stalled_after_s,
                clock=self._clock,
                rng=self._rng,
            )
        except SkyplaneError:
            _close_all(peers)
            raise
        for row in self.routes.statistics():
            loss = self.routes.loss(int(row["number"]))
            if loss is not None and row["role"] == "source":
                transfer.route_is_down(int(row["number"]), loss)
        await self._renew_fleet()
        try:
            self._require_open()
        except GatewayDraining:
            _close_all(peers)
            raise
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
        reasons = [str(row["down"]) for row in self.routes.statistics() if row["role"] == "source"]
        if len(topology.sources) == 1 and all(reasons):
            raise GatewayLost("no path is up: " + "; ".join(reasons))
        return topology

    async def _describe(
        self, sinks: Sequence[SinkPeer]
    ) -> tuple[StoreCapabilities, dict[str, int]]:
        """What the destination can do, and how many chunk bytes each sink can hold.

        One sink that answers is enough; the others are taken to be like this gateway.

        Raises:
            GatewayLost: none answers.
        """
        calls = {sink.node: asyncio.create_task(sink.call("describe", {})) for sink in sinks}
        await asyncio.wait(calls.values(), timeout=_DESCRIBED_WITHIN_S)
        capacity_bytes = dict.fromkeys(calls, self.config.assembly_mib * MIB)
        capabilities: StoreCapabilities | None = None
        silent: dict[str, str] = {}
        for node, call in calls.items():
            if not call.done():
                call.cancel()
                silent[node] = f"no answer within {_DESCRIBED_WITHIN_S:g} s"
                continue
            try:
                answer = call.result()
            except GatewayUnreachable as error:
                silent[node] = error.message
            else:
                capabilities = StoreCapabilities(**answer["capabilities"])
                capacity_bytes[node] = int(answer["capacity_bytes"])
        if capabilities is None:
            reasons = "; ".join(f"{node}: {reason}" for node, reason in silent.items())
            raise GatewayLost(f"no sink gateway answers ({reasons})")
        return capabilities, capacity_bytes

    async def _renew_fleet(self) -> None:
        """Renew all leases; a gateway that hangs does not hold up whoever submits."""
        renewal = asyncio.create_task(self._renewer.renew_fleet())
        self._renewals.add(renewal)
        renewal.add_done_callback(self._renewals.discard)
        await asyncio.wait({renewal}, timeout=_RENEWED_WITHIN_S)

    def _peers(
        self, key: str, epoch: int, topology: Topology
    ) -> tuple[list[SourcePeer], list[SinkPeer]]:
        sources: list[SourcePeer] = []
        sinks: list[SinkPeer] = []
        for node in topology.sources:
            if node == self.config.node:
                source = self.ends.sources[key]
                sources.append(LocalSource(node, source, self.routes.statistics))
            else:
                sources.append(RemoteSource(node, self._client(node), key, epoch))
        for node in topology.sinks:
            if node == self.config.node:
                sinks.append(LocalSink(node, partial(self.ends.store_verb, key, epoch)))
            else:
                sinks.append(RemoteSink(node, self._client(node), key, epoch))
        return sources, sinks

    def _client(self, node: str) -> ControlClient:
        topology = self.routes.topology
        if topology is None:
            raise ConfigurationInvalid(f"{self.config.node} has no topology yet")
        host, port = topology.control_addresses[node]
        uri = gateway_uri(self.config.fleet_key, node)
        # Both were made for this fleet: who cannot prove it has come after a gateway that ended.
        return ControlClient(host, port, self._client_context, uri, if_stranger=AddressTaken)

    async def cancel(self, key: str) -> None:
        """Stop leading a transfer and forget this end of it. Idempotent."""
        async with self.ends.lock(key):
            led = self._leads.get(key)
            if led is not None and not led.task.done():
                await self._end([led])
            await self.ends.release_locked(key, abandon=True)

    async def stop(self, key: str, why: SkyplaneError) -> None:
        """Stop leading a transfer, which then has failed for that reason; what it has begun
        stays for a resume. Idempotent."""
        async with self.ends.lock(key):
            led = self._leads.get(key)
            if led is not None and not led.task.done():
                await self._end([led], why)

    async def _end(self, leads: Sequence[_Led], why: SkyplaneError | None = None) -> None:
        """End transfers led here: cancelled, or stopped for a reason."""
        for led in leads:
            if why is not None:
                led.transfer.stop(why)
            led.task.cancel()
        if leads:
            await asyncio.wait({led.task for led in leads})

    # -- life and death

    def drain(self, *, unless_leading: bool = False) -> bool:
        """Take no new transfer; whether it is so.

        Args:
            unless_leading: go on as before while a transfer is led here.
        """
        if not (unless_leading and any(not led.task.done() for led in self._leads.values())):
            self._is_draining = True
        return self._is_draining

    def _require_open(self) -> None:
        if self._is_draining:
            raise GatewayDraining(f"{self.config.node} is draining and takes no new transfer")

    def request_shutdown(self, reason: str) -> None:
        """End soon; the first reason is the one that is logged."""
        if not self.shutdown_requested.is_set():
            self.shutdown_reason = reason
            self.shutdown_requested.set()

    def request_leave(self, notice: str) -> None:
        """End soon because the machine is wanted back: the transfers go on without it."""
        if not self.shutdown_requested.is_set():
            self.is_leaving = self._is_ending = True
            self.request_shutdown(notice)

    def require_in_service(self) -> None:
        """Raises GatewayDraining: this gateway is ending and takes nothing new."""
        if self._is_ending:
            raise self._draining()

    def _draining(self) -> GatewayDraining:
        return GatewayDraining(
            f"{self.config.node} is ending ({self.shutdown_reason or 'its process ends'}) and"
            " takes nothing new; ask another gateway of the fleet"
        )

    async def keep_alive(self) -> None:
        """Renew leases while a led transfer makes progress; end when the lease does."""
        await self._renewer.run()
        self.request_shutdown("the lease has expired")

    def _is_led(self, key: str) -> bool:
        led = self._leads.get(key)
        return led is not None and not led.task.done()

    def _progress(self) -> tuple[Any, ...] | None:
        """How far the transfers led here are; None when none is running."""
        running = [led.transfer for led in self._leads.values() if not led.task.done()]
        return tuple(transfer.progress() for transfer in running) or None

    def _others(self) -> list[str]:
        topology = self.routes.topology
        nodes = topology.control_addresses if topology is not None else {}
        return [node for node in nodes if node != self.config.node]

    async def _stop_leading(self) -> None:
        # A submit that is under way would begin a transfer that nobody stops.
        self._is_draining = True
        why = GatewayLost(
            f"{self.config.node} was shut down: {self.shutdown_reason or 'its process ends'}"
        )
        await self._end([led for led in self._leads.values() if not led.task.done()], why)

    async def leave(self, *, within_s: float = _FINISHED_WITHIN_S) -> None:
        """End as `request_leave` asks: finish what is being written, hand back the rest.

        Journals and open uploads stay for the next lead, as after a kill.

        Args:
            within_s: what has not finished by then is left.
        """
        self._is_ending = True
        self.sink.hand_back(self._draining())
        for row in self.routes.statistics():
            if row["role"] == "source":
                self.ends.route_is_down(row["number"], GatewayLost(self._draining().message))
        finishing = [
            asyncio.create_task(part)
            for part in (self._stop_leading(), self.sink.drain(), self.ends.finish_verbs())
        ]
        _, unfinished = await asyncio.wait(finishing, timeout=within_s)
        for task in unfinished:
            task.cancel()
        await self.routes.leave()
        self.ends.close_threads()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """Stop what is led, close every connection; whoever submits again goes on."""
        await self._stop_leading()
        self._is_ending = True
        for led in self._leads.values():
            led.transfer.report.close()
        self.ends.end_waits()
        await self.sink.drain()
        await self.ends.close()
        self.routes.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

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
            "attached": self.ends.attached(),
            "needs_credentials": {
                key: sides
                for key in self.ends.attached()
                if (sides := self.ends.needs_credentials(key))
            },
            "released": self.ends.released(),
        }

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
