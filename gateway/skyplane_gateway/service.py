"""One gateway process: its parts, its lease, its status and its end."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import (
    AddressTaken,
    ConfigurationInvalid,
    GatewayDraining,
    GatewayLost,
    Overloaded,
)
from skyplane_gateway.common.identifiers import gateway_uri, wire_fleet_id
from skyplane_gateway.config import CONTROL_VERSION, MIB, GatewayConfig, ProbeReport, Topology
from skyplane_gateway.control.caller import Caller
from skyplane_gateway.control.client import IN_MEMORY, ControlClient
from skyplane_gateway.lead.transfer import LeadTransfer
from skyplane_gateway.lease import Lease, LeaseRenewer
from skyplane_gateway.led_transfers import LedTransfers
from skyplane_gateway.protocol.connection import Identity
from skyplane_gateway.protocol.limits import WIRE_VERSION
from skyplane_gateway.sink.receiver import Sink
from skyplane_gateway.stores import load_stores_of
from skyplane_gateway.stores.http_client import close_connections
from skyplane_gateway.transfer_sides import TransferSides
from skyplane_gateway.transport.pending_connections import DATA_PORT_LIMIT, within_open_files
from skyplane_gateway.transport.router import Router

_LOG_TAIL_LIMIT: Final = 1 << 20

#: Writes under way may take so long after a SIGTERM; clouds give 30 s in all.
_FINISH_TIMEOUT_S: Final = 15.0


#: An orchestrator polls every second; after so long without a poll it does not count.
POLLER_TIMEOUT_S: Final = 5.0


class Pollers:
    """Sessions of orchestrators by transfer, each with the time of its last poll."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def note(self, transfer: str, session: str) -> None:
        """Record a poll; a caller without a name has an empty session."""
        self._forget_silent(transfer)
        if session:
            self._seen_s[transfer][session] = self._clock.monotonic()

    def forget(self, transfer: str, session: str) -> None:
        """The session polls no more."""
        self._seen_s[transfer].pop(session, None)

    def count(self, transfer: str) -> int:
        """How many orchestrators poll the transfer now."""
        self._forget_silent(transfer)
        return len(self._seen_s[transfer])

    def _forget_silent(self, transfer: str) -> None:
        since_s = self._clock.monotonic() - POLLER_TIMEOUT_S
        seen_s = self._seen_s[transfer]
        self._seen_s[transfer] = {one: at_s for one, at_s in seen_s.items() if at_s > since_s}


class GatewayService:
    """The state of one gateway process. All methods run on its event loop.

    Args:
        client_context: for calls to other gateways; None if all are in this process.

    Attributes:
        is_leaving: the machine ends the process, not the orchestrator and not the lease.
    """

    def __init__(
        self,
        config: GatewayConfig,
        client_context: ssl.SSLContext | None,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self._client_context = client_context
        self._clients: dict[tuple[str, str, int], ControlClient] = {}
        rng = rng or random.SystemRandom()
        self.lease = Lease(
            clock,
            start_within_s=config.start_within_s,
            lease_s=config.lease_s,
            hard_end_s=config.hard_end_s,
        )
        self.pollers = Pollers(clock)
        #: The plan of the fleet, which workers keep here for each other; empty if they did not.
        self.plan: Mapping[str, Any] = {}
        self._threads = ThreadPoolExecutor(config.store_threads, thread_name_prefix="store")
        self.router = self._make_router(clock, rng)
        self.sink = Sink(
            capacity_bytes=config.assembly_mib * MIB,
            send_receipt=self.router.send_receipt,
            threads=self._threads,
            node=config.node,
        )
        self.endpoints = TransferSides(
            config,
            sink=self.sink,
            routes=self.router,
            threads=self._threads,
            is_led=lambda key: self.leads.is_running(key),
            clock=clock,
        )
        self._renewer = LeaseRenewer(
            self.lease,
            lease_s=config.lease_s,
            stall_deadline_s=config.stalled_after_s,
            progress=self._progress,
            others=self._others,
            connect=self._client,
            clock=clock,
        )
        self.leads = LedTransfers(
            config,
            endpoints=self.endpoints,
            router=self.router,
            threads=self._threads,
            connect=self._client,
            renew_fleet=self._renewer.renew_fleet,
            clock=clock,
            rng=rng,
        )
        self._is_ending = False
        self.is_leaving = False
        self.shutdown_reason = ""
        self.shutdown_requested = asyncio.Event()

    def _make_router(self, clock: Clock, rng: random.Random) -> Router:
        config = self.config
        keys = {peer: bytes.fromhex(key) for peer, key in config.hello_keys_hex.items()}
        return Router(
            Identity(wire_fleet_id(config.fleet_key), config.node, keys),
            self,
            write_timeout_s=config.write_timeout_s,
            pending_limit=within_open_files(DATA_PORT_LIMIT),
            clock=clock,
            rng=rng,
        )

    # -- the data path

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        self.endpoints.route_is_down(number, loss)
        self.sink.route_is_down(number)
        for transfer in self._leads_using(number):
            transfer.route_is_down(number, loss)

    def route_is_up(self, number: int) -> None:
        for transfer in self._leads_using(number):
            transfer.route_is_up(number)

    def _leads_using(self, number: int) -> list[LeadTransfer]:
        """Running transfers led here that use the route, if it begins here.

        The source of any other route reports its state to the lead.
        """
        topology = self.router.topology
        routes = topology.routes if topology is not None else ()
        if not any(row.number == number and row.nodes[0] == self.config.node for row in routes):
            return []
        return [transfer for transfer in self.leads.running() if transfer.uses(number)]

    def apply_topology(self, topology: Topology) -> None:
        """Connect the routes; see `Router.apply`."""
        self.router.apply(topology, self.config.data_host)
        node, is_process = self.config.node, self._client_context is not None
        if is_process and node in (*topology.sources, *topology.sinks):
            # A first transfer need not wait for that. The region tag is the beginning of the name.
            self._threads.submit(load_stores_of, node.partition(":")[0])
            self.leads.connect_sinks(topology)

    async def probe(self, route: int, seconds: float) -> ProbeReport:
        """Measure a route that begins here; see `Router.probe`.

        Raises Overloaded while the gateway is part of a transfer.
        """
        if self.endpoints.attached() or self.leads.running():
            raise Overloaded(f"{self.config.node} is part of a transfer, which a probe would slow")
        return await self.router.probe(route, seconds)

    def may_lead(self, node: str) -> bool:
        """Whether the node is a source of the fleet, and so may call the verbs of a lead."""
        topology = self.router.topology
        return topology is not None and node in topology.sources

    # -- other gateways

    def _client(self, node: str) -> ControlClient:
        topology = self.router.topology
        if topology is None:
            raise ConfigurationInvalid(f"{self.config.node} has no topology yet")
        host, port = topology.control_addresses[node]
        uri = gateway_uri(self.config.fleet_key, node)
        # The address was made for this fleet: a server of another fleet took it over.
        context = None if host == IN_MEMORY else self._client_context
        me = Caller(self.config.node)
        made = ControlClient(host, port, context, uri, wrong_peer_error=AddressTaken, caller=me)
        return self._clients.setdefault((uri, host, port), made)

    def _others(self) -> list[str]:
        topology = self.router.topology
        nodes = topology.control_addresses if topology is not None else {}
        return [node for node in nodes if node != self.config.node]

    # -- life and end

    def _progress(self) -> tuple[Any, ...] | None:
        """Progress of the transfers led here; None when none is running."""
        return tuple(transfer.progress() for transfer in self.leads.running()) or None

    async def keep_alive(self) -> None:
        """Renew leases while a led transfer makes progress; shut down when the lease expires."""
        await self._renewer.run()
        self.request_shutdown("the lease has expired")

    def drain(self, *, unless_leading: bool = False) -> bool:
        """Take no new transfer; returns whether the gateway is draining now.

        Args:
            unless_leading: change nothing while a transfer is led here.
        """
        if not (unless_leading and self.leads.running()):
            self.leads.is_draining = True
        return self.leads.is_draining

    def request_shutdown(self, reason: str) -> None:
        """End soon; the first reason is the one that is logged."""
        if not self.shutdown_requested.is_set():
            self.shutdown_reason = reason
            self.shutdown_requested.set()

    def request_leave(self, notice: str) -> None:
        """End soon because the machine ends; the transfers continue on other gateways."""
        if not self.shutdown_requested.is_set():
            self.is_leaving = self._is_ending = True
            self.request_shutdown(notice)

    def require_in_service(self) -> None:
        """Raises GatewayDraining: this gateway is ending and takes no request."""
        if self._is_ending:
            raise self._draining()

    def _draining(self) -> GatewayDraining:
        return GatewayDraining(
            f"{self.config.node} is ending ({self.shutdown_reason or 'its process ends'}) and"
            " takes nothing new; ask another gateway of the fleet"
        )

    async def _stop_leading(self) -> None:
        reason = self.shutdown_reason or "its process ends"
        await self.leads.stop_all(GatewayLost(f"{self.config.node} was shut down: {reason}"))

    async def leave(self, *, within_s: float = _FINISH_TIMEOUT_S) -> None:
        """End after `request_leave`: finish the writes under way, refuse everything else.

        Journals and open uploads stay for the next lead, as after a kill. Writes that take longer
        than `within_s` are abandoned.
        """
        self._is_ending = True
        self.sink.hand_back(self._draining())
        for row in self.router.statistics():
            if row["role"] == "source":
                self.endpoints.route_is_down(row["number"], GatewayLost(self._draining().message))
        finishing = [
            asyncio.create_task(part)
            for part in (
                self._stop_leading(),
                self.sink.drain(),
                self.endpoints.verb_threads.finish(),
            )
        ]
        _, unfinished = await asyncio.wait(finishing, timeout=within_s)
        for task in unfinished:
            task.cancel()
        await self.router.leave()
        self.endpoints.verb_threads.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def close(self) -> None:
        """Stop all led transfers and close every connection; a later submit can resume them."""
        await self._stop_leading()
        self._is_ending = True
        self.leads.close_reports()
        self.endpoints.end_waits()
        await self.sink.drain()
        await self.endpoints.close()
        self.router.close()
        close_connections()
        for client in self._clients.values():
            client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    # -- status

    def status(self) -> dict[str, Any]:
        """The gateway's status document; readable by neighbouring versions."""
        attached = self.endpoints.attached()
        needs_credentials = {key: self.endpoints.needs_credentials(key) for key in attached}
        return {
            "version": CONTROL_VERSION,
            "wire_version": WIRE_VERSION,
            "node": self.config.node,
            "fleet": self.config.fleet_key,
            "state": "draining" if self.leads.is_draining else "running",
            "connected": self.router.is_connected,
            "lease_remaining_s": self.lease.remaining_s,
            "held_bytes": self.sink.held_bytes,
            "routes": self.router.statistics(),
            "trees": self.router.statistics(of_trees=True),
            "leading": self.leads.status(),
            "attached": attached,
            "needs_credentials": {key: sides for key, sides in needs_credentials.items() if sides},
            "released": self.endpoints.ended_epochs.rows(),
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
