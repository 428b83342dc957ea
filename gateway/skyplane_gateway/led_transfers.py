"""The transfers that this gateway leads: submit, cancel, stop."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import StoreCapabilities
from skyplane_gateway.config import MIB, GatewayConfig, Topology, TransferSpec
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.lead.sink_pool import SinkPeer, remote_sink
from skyplane_gateway.lead.source_peers import LocalSource, RemoteSource, SourcePeer
from skyplane_gateway.lead.transfer import LeadTransfer, Peers
from skyplane_gateway.stores.base import ListedRows
from skyplane_gateway.transfer_sides import TransferSides
from skyplane_gateway.transport.router import Router

log = logging.getLogger(__name__)

#: The caller of a submit waits 10 s for the response; gateways that hang use less of it.
_DESCRIBE_TIMEOUT_S: Final = 5.0
_RENEW_TIMEOUT_S: Final = 2.0

#: A transfer begins with so many calls of its sinks at the same time.
_CALLS_AT_ONCE: Final = 3


@dataclass(frozen=True, slots=True)
class _Run:
    """A transfer and the task that runs it."""

    transfer: LeadTransfer
    task: asyncio.Task[None]

    @property
    def is_over(self) -> bool:
        return self.task.done()


class LedTransfers:
    """Transfers by key; one that has ended stays, with its report, until a newer epoch.

    Args:
        threads: where blocking calls run.
        connect: the control client of another gateway.
        renew_fleet: renews the leases of all gateways.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        endpoints: TransferSides,
        router: Router,
        threads: Executor,
        connect: Callable[[str], ControlClient],
        renew_fleet: Callable[[], Awaitable[None]],
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._config = config
        self._endpoints = endpoints
        self._router = router
        self._threads = threads
        self._connect = connect
        self._renew_fleet = renew_fleet
        self._clock = clock
        self._rng = rng
        self._runs: dict[str, _Run] = {}
        self._renewals: set[asyncio.Future[None]] = set()
        #: No new transfer is taken.
        self.is_draining = False

    # -- what runs

    def transfer(self, key: str) -> LeadTransfer:
        """The transfer that this gateway leads or led. Raises UnknownTransfer."""
        run = self._runs.get(key)
        if run is None:
            raise UnknownTransfer(f"{self._config.node} does not lead transfer {key}")
        return run.transfer

    def is_running(self, key: str) -> bool:
        run = self._runs.get(key)
        return run is not None and not run.is_over

    def running(self) -> list[LeadTransfer]:
        return [run.transfer for run in self._runs.values() if not run.is_over]

    def status(self) -> dict[str, Any]:
        """Transfer key -> status document."""
        return {key: run.transfer.status() for key, run in self._runs.items()}

    # -- submit

    async def submit(
        self, key: str, *, epoch: int, spec: TransferSpec, listed: ListedRows | None = None
    ) -> dict[str, Any]:
        """Lead a transfer, or join it when it runs already.

        Args:
            listed: rows of the source that the lead need not list.

        Raises:
            UnknownTransfer: its source side was not attached before.
            GatewayLost: no path of the fleet is up, or no sink responds.
            GatewayDraining: the gateway takes no new transfer.
        """
        async with self._endpoints.lock(key):
            earlier = self._runs.get(key)
            if earlier is not None and (not earlier.is_over or earlier.transfer.epoch >= epoch):
                return {"joined": True, "epoch": earlier.transfer.epoch}
            self._require_open()
            topology = self._usable_topology()
            if spec.sinks:
                topology = topology.to(spec.sinks)
            self._endpoints.source(key, epoch)
            both_ends = await self._both_ends(key, *self._peers(key, epoch, topology), listed)
            self._require_open()
            transfer = self._lead_transfer(key, epoch, spec, topology, both_ends)
            if earlier is not None:
                earlier.transfer.report.close()
            task = asyncio.create_task(transfer.run())
            self._runs[key] = _Run(transfer, task)
            log.info("leading transfer %s, epoch %d", key, epoch)
            # All leases are renewed; a gateway that hangs does not delay the response.
            renewal = asyncio.ensure_future(self._renew_fleet())
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)
            await asyncio.wait({renewal}, timeout=_RENEW_TIMEOUT_S)
        return {"joined": False, "epoch": epoch}

    def connect_sinks(self, topology: Topology) -> None:
        """Open the connections that a first transfer calls the sinks by: each takes two waits."""
        # The client asks the first source to lead.
        for node in topology.sinks if topology.sources[:1] == (self._config.node,) else ():
            for _ in range(math.ceil(_CALLS_AT_ONCE / len(topology.sinks))):
                if node != self._config.node:
                    # Nobody reads an error: the transfer calls the sink again.
                    self._threads.submit(self._connect(node).status)

    def _require_open(self) -> None:
        if self.is_draining:
            raise GatewayDraining(f"{self._config.node} is draining and takes no new transfer")

    def _usable_topology(self) -> Topology:
        topology = self._router.topology
        if topology is None or self._config.node not in topology.sources:
            raise ConfigurationInvalid(f"{self._config.node} is no source gateway; submit to one")
        reasons = [str(row["down"]) for row in self._router.statistics() if row["role"] == "source"]
        if len(topology.sources) == 1 and all(reasons):
            raise GatewayLost("no path is up: " + "; ".join(reasons))
        return topology

    def _peers(
        self, key: str, epoch: int, topology: Topology
    ) -> tuple[list[SourcePeer], list[SinkPeer]]:
        sources: list[SourcePeer] = []
        sinks: list[SinkPeer] = []
        for node in topology.sources:
            if node == self._config.node:
                source = self._endpoints.sources[key]
                sources.append(LocalSource(node, source, self._router.statistics))
            else:
                sources.append(RemoteSource(node, self._connect(node), key, epoch))
        for node in topology.sinks:
            if node == self._config.node:
                sinks.append(SinkPeer(node, partial(self._endpoints.store_verb, key, epoch)))
            else:
                sinks.append(remote_sink(node, self._connect(node), key, epoch))
        return sources, sinks

    async def _both_ends(
        self,
        key: str,
        sources: Sequence[SourcePeer],
        sinks: Sequence[SinkPeer],
        listed: ListedRows | None,
    ) -> Peers:
        """The peers, with what the destination can do and how many chunk bytes each sink holds.

        One response is enough: the capacity of a silent sink counts as this gateway's own.
        """
        # Each opens a connection, which takes longer than a call over one.
        each = math.ceil(_CALLS_AT_ONCE / len(sinks))
        calls = [
            (sink.node, asyncio.create_task(sink.call("describe", {})))
            for sink in sinks
            for _ in range(1 if sink.node == self._config.node else each)
        ]
        await asyncio.wait([call for _, call in calls], timeout=_DESCRIBE_TIMEOUT_S)
        capacity_bytes = {node: self._config.assembly_mib * MIB for node, _ in calls}
        capabilities: StoreCapabilities | None = None
        silent: dict[str, str] = {}
        for node, call in calls:
            if not call.done():
                call.cancel()
                silent[node] = f"no answer within {_DESCRIBE_TIMEOUT_S:g} s"
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
        return Peers(
            store=self._endpoints.sources[key].store,
            sources={source.node: source for source in sources},
            sinks=sinks,
            capabilities=capabilities,
            sink_capacity_bytes=capacity_bytes,
            threads=self._threads,
            listed=listed,
        )

    def _lead_transfer(
        self, key: str, epoch: int, spec: TransferSpec, topology: Topology, both_ends: Peers
    ) -> LeadTransfer:
        transfer = LeadTransfer(
            transfer_key=key,
            epoch=epoch,
            spec=spec,
            topology=topology,
            peers=both_ends,
            ack_deadline_s=self._config.ack_deadline_s,
            stall_deadline_s=self._config.stalled_after_s,
            clock=self._clock,
            rng=self._rng,
        )
        for row in self._router.statistics():
            loss = self._router.loss(int(row["number"]))
            if loss is not None and transfer.uses(int(row["number"])):
                transfer.route_is_down(int(row["number"]), loss)
        return transfer

    # -- the end

    async def cancel(self, key: str) -> None:
        """Stop leading a transfer and release its endpoint here. Idempotent."""
        async with self._endpoints.lock(key):
            await self._end(key)
            await self._endpoints.release_locked(key, abandon=True)

    async def stop(self, key: str, why: SkyplaneError) -> None:
        """Fail a transfer for that reason, but keep what a resume needs. Idempotent."""
        async with self._endpoints.lock(key):
            await self._end(key, why=why)

    async def stop_all(self, why: SkyplaneError) -> None:
        """Stop every transfer, and take no new one."""
        self.is_draining = True
        await self._end(*self._runs, why=why)

    async def _end(self, *keys: str, why: SkyplaneError | None = None) -> None:
        runs = [self._runs[key] for key in keys if self.is_running(key)]
        for run in runs:
            if why is not None:
                run.transfer.stop(why)
            run.task.cancel()
        if runs:
            await asyncio.wait({run.task for run in runs})

    def close_reports(self) -> None:
        for run in self._runs.values():
            run.transfer.report.close()
